"""What the API needs of the rest of the platform, handed in by the composition root."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from isthmus.engines.base import Stream
from isthmus.identity.authenticating import Authenticator
from isthmus.resources.jobs import Job
from isthmus.storage.base import Blobs
from isthmus.store.base import Store
from isthmus.telemetry.collecting import Telemetry

from .lifelines import Lifelines


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


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may ask for."""

    body_bytes: int = 3 * 2**20
    """Of a manifest. Larger ones belong into files."""
    nesting: int = 64
    """Of JSON and YAML: deeper documents are attacks, not manifests."""
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
    limits: Limits = field(default_factory=Limits)
    lifelines: Lifelines = field(default_factory=Lifelines)
    """The open streams. The server calls `lifelines.close()` when it stops, before it waits for requests."""
