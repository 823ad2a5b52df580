"""What the API needs of the rest of the platform, handed in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from isthmus._kit.sealing import Sealer
from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.offers import AgentPackages
from isthmus.engines.base import (
    Execution,
    FilePart,
    FolderListing,
    PortStream,
    SiteImage,
    Stream,
    TerminalSize,
)
from isthmus.identity.audit.audit_log import AuditLog
from isthmus.identity.authenticating import Authenticator
from isthmus.identity.slowing import Slowing
from isthmus.resources.jobs import Job
from isthmus.resources.work.plans import PlanStatus
from isthmus.storage.base import Blobs
from isthmus.store.base import Store
from isthmus.telemetry.updating import Telemetry

from .lifelines import Lifelines
from .working import WorkThreads


class Logs(Protocol):
    """The output of jobs, wherever they run."""

    async def read(self, job: Job, attempt: int, stream: Stream, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; empty at the present end, and for a job that has not started."""
        ...

    async def size(self, job: Job, attempt: int, stream: Stream) -> int:
        """How long it is now."""
        ...

    async def wait(self, job: Job, attempt: int, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when there may be more than `offset`, at the latest after `timeout` seconds."""
        ...


class Folders(Protocol):
    """The folders in which jobs work, while they work there."""

    async def list_files(self, job: Job, most: int) -> FolderListing:
        """What is in the folder of the present attempt, up to so many entries; raises NotFound, EngineRefused."""
        ...

    async def read_file(self, job: Job, path: str, offset: int, size: int) -> FilePart:
        """Part of a plain file; raises NotFound, EngineRefused."""
        ...


class SiteImages(Protocol):
    """Container images that sites keep."""

    async def list(self) -> tuple[list[tuple[str, SiteImage]], set[str]]:
        """Every image with its site, and the sites that could not be asked."""
        ...

    async def remove(self, site: str, image: SiteImage, tenant: str | None) -> bool:
        """Remove an image, or for a tenant what it has of it; False if a job uses it. Raises SiteUnavailable."""
        ...


class RunVisits(Protocol):
    """Ways into jobs that run."""

    async def connect(self, job: Job, port: int) -> PortStream:
        """To a port; raises NotFound, PortClosed, EngineRefused, SiteUnavailable."""
        ...

    async def execute(self, job: Job, command: Sequence[str], terminal: TerminalSize | None) -> Execution:
        """With a command; raises NotFound, EngineRefused, SiteUnavailable."""
        ...


class Plans(Protocol):
    """What would become of a job."""

    async def prepare(self, job: Job) -> Callable[[], PlanStatus]:
        """What works out where it would go, when it would end and what it would cost: for a thread. Raises Conflict for
        a job that is over."""
        ...


class AgentWheels(Protocol):
    """Gives machines what they install."""

    def packages(self) -> AgentPackages:
        """All of it. For a thread."""
        ...


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much one request may ask for."""

    body_bytes: int = 3 * 2**20
    """Of a manifest, as it is sent: YAML and patches may be longer than the object they make."""
    object_bytes: int = 3 * 2**19
    """Of an object, without its status: 1.5 MiB, as much as etcd takes. Larger data belong into files."""
    annotation_bytes: int = 256 * 2**10
    """Of all annotations of an object, as in Kubernetes."""
    list_bytes: int = 64 * 2**20
    """Of one answer with many objects, about; the rest comes with `continue`."""
    nesting: int = 64
    """Of JSON and YAML: deeper documents are attacks, not manifests."""
    body_seconds: float = 60.0
    """In which a manifest must have arrived, and between two pieces of a file: who sends slower holds a connection."""
    file_bytes: int = 64 * 2**30
    """Of one uploaded file or pack."""


@dataclass(frozen=True)
class Context:
    """The platform, as the API sees it."""

    store: Store
    authenticator: Authenticator
    blobs: Blobs
    logs: Logs
    telemetry: Telemetry | None = None
    """Series of jobs; none: they are not offered."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    lifelines: Lifelines = field(default_factory=Lifelines)
    """The open streams. The server calls `lifelines.close()` when it stops, before it waits for requests."""
    folders: Folders | None = None
    """Files of running jobs; none: they are not offered."""
    plans: Plans | None = None
    images: SiteImages | None = None
    """Images that sites keep; none: they are not offered."""
    sealer: Sealer | None = None
    """Seals what is secret on its way into the store; none: nothing secret is taken."""
    visits: RunVisits | None = None
    """Ports of running jobs and commands beside them; none: they are not offered."""
    agents: AgentHub | None = None
    """Where agents connect; none: they are not offered."""
    wheels: AgentWheels | None = None
    """What machines that join install; none: it is not offered."""
    audit: AuditLog | None = None
    """Where acts are kept; none: they are not."""
    slowing: Slowing = field(default_factory=Slowing)
    """What is known of bad credentials."""
    work: WorkThreads = field(default_factory=WorkThreads)
    """Threads for what large requests ask of the processor."""
