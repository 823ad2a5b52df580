"""The engine contract: what runs work, seen alike by everybody.

A driver validates cheaply, never sleeps and never retries in hiding. Its every effect is idempotent:

- **submit** is keyed by the run's id. The engine looks for that id before it starts anything, so that it may be
  called again after a crash, a lost reply or a time-out, and never starts a second run.
- **observe** answers `None` only when the engine answered and has no such run. When it could not find out, it
  raises `SiteUnavailable`: unknown is not gone.
- **cancel** asks for the end and returns; the end is seen by observing. A run that the engine does not know is barred
  where the engine can: a submission that is still on its way must not start it afterwards.
- **changes** yields ids whose observation may be new. It may yield too many, and never too few for longer than
  the driver's own interval; on opening it yields every run the engine knows.

The contract is made of parts. `Engine` is the one that every engine has; `HoldingEngine`, `StagingEngine`,
`ReadingEngine` and `FolderReader` are had by those that can. `testing/engines` has a suite for each part; a driver
passes those of the parts that it has. Every background task of an engine is in its `tasks`: none may die unnoticed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from isthmus._kit.tasks import SupervisedTasks
from isthmus.images.logins import RegistryLogin
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.jobs import DependencyCondition
from isthmus.resources.sites import AgentContact, Capacity, SiteNode, SiteQueue
from isthmus.resources.work.engine_options import EngineOptions
from isthmus.resources.work.trees import TreeFile

from .environment_words import PythonSetup

OptionsT = TypeVar("OptionsT", bound=EngineOptions)


class RunState(StrEnum):
    """Where a run is, in the words every engine is translated to."""

    UNKNOWN = "Unknown"
    """The engine named a state that we have no word for; nothing is concluded from it."""
    QUEUED = "Queued"
    RUNNING = "Running"
    ENDED = "Ended"


class EndReason(StrEnum):
    """Why a run ended, where the engine knows."""

    COMPLETED = "Completed"
    """By itself; the exit code says how."""
    CANCELLED = "Cancelled"
    """Because we asked."""
    TIME_LIMIT = "TimeLimit"
    OUT_OF_MEMORY = "OutOfMemory"
    DISK_LIMIT = "DiskLimit"
    """Its files took more disk than it may use."""
    START_FAILED = "StartFailed"
    """Never began: program not found, files could not be staged."""
    NODE_LOST = "NodeLost"
    """The machine went down or was restarted under it."""
    PREEMPTED = "Preempted"
    """The site ended it to make room for something that matters more there."""
    SUPERVISOR_LOST = "SupervisorLost"
    """Whatever watched over it was killed; how it ended is not known."""


class Stream(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class Account:
    """Under whom a run runs: an account's name, or numbers. Never root."""

    user: str | None = None
    uid: int | None = None


class After(NamedTuple):
    """Another run of the same site, and what must be true of it before this one begins."""

    run_id: str
    condition: DependencyCondition


@dataclass(frozen=True, slots=True)
class ArrayPart:
    """Which element of which array a run is."""

    number: int
    """What scripts know the array by; no job of Slurm's has it."""
    index: int
    count: int
    """Elements of the whole array."""
    first: int
    last: int
    step: int


@dataclass(frozen=True, slots=True)
class Run:
    """One try of one job, as an engine needs to know it."""

    id: str
    """`<uid of the job>.<attempt>`; unique for all time."""
    namespace: str
    job: str
    command: tuple[str, ...] = ()
    script: str | None = None
    args: tuple[str, ...] = ()
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None
    """Path in the run's folder of what it reads on standard input; None: nothing."""
    separate_streams: bool = False
    working_dir: str = ""
    """The folder below the job's own in which it starts; empty: the job's own."""
    log_files: Mapping[Stream, str] = field(default_factory=dict)
    """Patterns of `engines.batch_scripts`: the log is in the working folder too, under these names, while it runs."""
    append_logs: bool = False
    """What such a file holds already, when the run begins, stays before the output."""
    milli_cpus: int = 1000
    memory_bytes: int = 0
    """0: it asks for none."""
    memory_share: int = 0
    """Bytes for a run that asks for none, from the tenant's quota; 0: as much as the site gives. Engines whose own
    scheduler has a default (Slurm's DefMemPerCPU, a LimitRange of Kubernetes) leave it to that."""
    log_bytes: int = 0
    """Bytes of each of its logs that are kept, by the tenant's quota; 0: as many as the site keeps."""
    disk_bytes: int = 0
    """Bytes that its working folder may take, by the tenant's quota; 0: as many as the site permits. Engines that
    cannot limit it leave it to the site."""
    time_limit: float | None = None
    nodes: int = 1
    tasks: int = 1
    devices: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    account: Account = field(default_factory=Account)
    keeps_files: bool = True
    """Whether files may be collected after the end; engines without a shared file system hold the folder for that."""
    options: tuple[EngineOptions, ...] = ()
    """Sections that only one kind of engine reads; an engine takes its own with `section`."""
    after: tuple[After, ...] = ()
    """What it waits for in the engine's own queue; only where the engine's capabilities have `dependencies`."""
    array: ArrayPart | None = None
    login: RegistryLogin | None = None
    """With which the image is fetched, if it is not for everybody. Written nowhere."""
    python: PythonSetup | None = None
    """The environment of Python packages that it has; None: none of its own."""
    member: str = ""
    """Who of the tenant submitted it; empty where that is not known."""
    placed_here: bool = True
    """Whether the control plane that submits it placed it; otherwise another one may be about to submit it too."""

    def section(self, kind: type[OptionsT]) -> OptionsT:
        """The section of this kind, or an empty one."""
        return next((section for section in self.options if isinstance(section, kind)), None) or kind()


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What a run used."""

    elapsed_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    energy_joules: float | None = None
    energy_source: str | None = None
    """`rapl`, `hwmon`, `nvml`, `command`, `engine`, or `estimated`."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What an engine says of a run."""

    state: RunState
    engine_id: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: EndReason | None = None
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    usage: RunUsage | None = None
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Which units of each class it was given."""
    image: str | None = None
    """Digest of the image that it runs in, where the engine knows it."""
    held: bool = False
    """Waits because we asked the engine to hold it."""
    start_between: tuple[datetime, datetime] | None = None
    """Of a run that waits: an estimate of its start, from the engine's own plan."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do by itself; what it cannot, the control plane does or refuses."""

    queues: bool = False
    """Keeps a queue of its own: work is sent at once and waits there. Otherwise work is sent when there is room."""
    multi_node: bool = False
    images: bool = False
    image_files: bool = False
    """Runs images that are among the files sent along, and not only those of registries."""
    environments: bool = False
    """Makes environments of Python packages for runs."""
    hold: bool = False
    """Holds and releases what waits in its queue: it is a `HoldingEngine`."""
    dependencies: bool = False
    """Lets a run wait for others in its own queue, and keeps its place there."""
    corrects: bool = False
    """Reports a run again after its end, when it has learned more of what the run used."""
    samples: bool = False
    """Writes down what a run uses while it runs: `read_samples` has something to read."""
    log_files: bool = False
    """Has the log in the job's folder as well, where a job asks for that; elsewhere it is copied after the end."""
    numbers: bool = False
    """Its ids of runs are what scripts find as SLURM_JOB_ID."""
    needs_image: bool = False
    """Has no image of its own: every run must name one."""
    options: type[EngineOptions] | None = None
    """The section of a job that this engine reads, and no other kind of engine does."""

    def reads(self, sections: Iterable[EngineOptions]) -> bool:
        """Whether the engine reads one of these sections."""
        return self.options is not None and any(isinstance(section, self.options) for section in sections)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is there."""

    version: str = ""
    capacity: Capacity = field(default_factory=Capacity)
    others: Capacity | None = None
    """Taken by work that is not ours; None: not known."""
    nodes: tuple[SiteNode, ...] = ()
    queues: tuple[SiteQueue, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)
    """Such as `memory-limit: cgroup v1`; shown in the site's status and by `isthmus doctor`."""


class FileSource(Protocol):
    """The folder sent along with a run."""

    @property
    def files(self) -> Sequence[TreeFile]:
        """What is in it; paths are checked."""
        ...

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies on this machine, to be copied and not to be changed."""
        ...


class FileSink(Protocol):
    """Where files of a run are brought back to."""

    async def add(self, path: str, source: Path | int, mode: int) -> None:
        """Keep a copy of one regular file under a relative path.

        Given by its path, or by an open descriptor: what an untrusted job left must not be opened a second time.
        """
        ...

    async def add_link(self, path: str, target: str) -> None:
        """Keep a symbolic link that stays inside the folder."""
        ...


class FileKind(StrEnum):
    """What an entry of a folder is."""

    FILE = "File"
    LINK = "Link"
    OTHER = "Other"
    """A pipe, a socket, a device: it is named and never opened."""


class WorkFile(NamedTuple):
    """One entry of the folder in which a run works; folders are seen by what is in them."""

    path: str
    kind: FileKind
    size: int
    modified: float
    """Seconds since 1970."""


class FolderListing(NamedTuple):
    """What is in the folder of a run now."""

    files: tuple[WorkFile, ...]
    complete: bool
    """False: there is more than was asked for."""


class FilePart(NamedTuple):
    """Part of a file, and what is known of the whole."""

    data: bytes
    size: int
    mark: str = ""
    """Differs when another file took the place of the first; empty where that cannot be seen."""


class Engine(Protocol):
    """What runs work at one site: the part that every engine has."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do by itself."""
        ...

    @property
    def tasks(self) -> SupervisedTasks:
        """Its background tasks. While a vital one is down the site is not Ready: see `isthmus._kit.tasks`."""
        ...

    async def open(self) -> None:
        """Connect. Runs that were started earlier are found again."""
        ...

    async def close(self) -> None:
        """Let go. Runs go on."""
        ...

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """Look what is there; raises SiteUnavailable."""
        ...

    def check(self, run: Run) -> None:
        """Refuse, without asking anybody, what can never work here; raises EngineRefused."""
        ...

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Start the run, or find it if it was started before; raises EngineRefused, SiteUnavailable."""
        ...

    async def observe(self, run_id: str) -> Observation | None:
        """What is known of a run; None: the engine has no such run."""
        ...

    def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs whose observation may be new, as it happens."""
        ...

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """Ask for the end of the whole process tree: terminate, and kill after `grace` seconds."""
        ...

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the files that match, after the end; a sentence for each match that was not kept."""
        ...

    async def tidy(self, run_id: str) -> None:
        """After collecting: free the working folder. Log and record stay."""
        ...

    async def forget(self, run_id: str) -> None:
        """Remove everything of an ended run. A run that is still going is not touched."""
        ...


@runtime_checkable
class LogReader(Protocol):
    """What a run printed, and the journal of what it used."""

    async def close(self) -> None:
        """Let go."""
        ...

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; empty at the present end. Raises NotFound if there is no such run."""
        ...

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the run's journal (see `engines.sampling`), like its log; empty where there is none."""
        ...

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long the log is now."""
        ...

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when the log may be longer than `offset` or the run may have ended, at the latest after `timeout`."""
        ...


@runtime_checkable
class FolderReader(Protocol):
    """The folder in which a run works, for those who look while it works there. Nothing is changed."""

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in it, up to so many entries; raises NotFound if it is not there, EngineRefused if it is closed."""
        ...

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Up to `size` bytes of a plain file; no link is followed. Raises NotFound."""
        ...


@runtime_checkable
class ReadingEngine(LogReader, Protocol):
    """An engine whose logs can be read: through itself while it is open, and without opening it for work."""

    async def open_to_read(self) -> LogReader:
        """A reader for a control plane that does not lead; the engine itself stays closed.

        It changes nothing at the site, whoever works there: no folder, record or object is written, no run is settled
        and nothing is started. Closing it closes everything that was opened. Raises SiteUnavailable.
        """
        ...


class RunDisk(NamedTuple):
    """What a run takes of the disk of the machine on which the control plane runs."""

    logs: int
    """Bytes of what it printed, and of the journal of what it used."""
    folders: int
    """Bytes of its working folder, as last measured; 0 once it is freed."""


@runtime_checkable
class MeasuringEngine(Protocol):
    """An engine that keeps something of its runs on the disk of the control plane's machine."""

    async def measure(self) -> Mapping[str, RunDisk]:
        """What each run that is kept takes there now; raises SiteUnavailable."""
        ...


@runtime_checkable
class ContactedEngine(Protocol):
    """An engine behind a connection that is not ours to make, and that may be away for long."""

    @property
    def lost(self) -> bool:
        """Whether its runs count as lost, by a limit or by an administrator's word."""
        ...

    def contact(self) -> AgentContact:
        """What was last heard of it."""
        ...


@runtime_checkable
class HoldingEngine(Protocol):
    """An engine that holds what waits in its queue. A run that has begun, or ended, is not touched."""

    async def hold(self, run_id: str) -> None:
        """Do not start it; raises SiteUnavailable."""
        ...

    async def release(self, run_id: str) -> None:
        """Let it start, if it was held by us; raises SiteUnavailable."""
        ...


class PortStream(Protocol):
    """A connection to a port of a run: bytes both ways."""

    async def receive(self) -> bytes:
        """What came, at most some 64 KiB; empty when nothing more will. Raises OSError when it broke."""
        ...

    async def send(self, data: bytes) -> None:
        """Hand bytes over; returns when the other side can take more. Raises OSError when it broke."""
        ...

    async def finish(self) -> None:
        """Nothing more will be sent."""
        ...

    async def close(self) -> None:
        """Let go, at once."""
        ...


@runtime_checkable
class PortEngine(Protocol):
    """An engine that leads to ports of runs that are under way."""

    async def connect(self, run_id: str, port: int) -> PortStream:
        """Connect to a port on which a program of the run listens, on the loopback of its own network.

        Raises NotFound if the run is not under way, PortClosed if nothing listens there, EngineRefused if this run can
        never be reached, SiteUnavailable.
        """
        ...


class TerminalSize(NamedTuple):
    """Of a terminal, in characters."""

    rows: int
    columns: int


class Execution(Protocol):
    """A command beside a run."""

    async def write(self, data: bytes) -> None:
        """To its standard input; what it does not read any more is dropped."""
        ...

    async def finish(self) -> None:
        """Its standard input ends."""
        ...

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it prints, until it has ended. With a terminal all of it is standard output."""
        ...

    async def resize(self, size: TerminalSize) -> None:
        """Its terminal, if it has one, was made larger or smaller."""
        ...

    async def wait(self) -> int:
        """Its exit code, or minus the number of the signal that ended it; raises SiteUnavailable if that is lost."""
        ...

    async def close(self) -> None:
        """Let go; a command that still runs is ended."""
        ...


@runtime_checkable
class ExecEngine(Protocol):
    """An engine that runs commands beside runs that are under way: in the same sandbox, as the same account."""

    async def execute(self, run_id: str, command: Sequence[str], terminal: TerminalSize | None = None) -> Execution:
        """Start a command; raises NotFound if the run is not under way, EngineRefused, SiteUnavailable."""
        ...


class SiteImage(NamedTuple):
    """An image that is kept at a site."""

    name: str
    digest: str
    bytes: int
    used_at: float
    """Seconds since 1970."""
    tenants: frozenset[str]
    """Whose jobs used it."""
    private: bool
    """Whether it is given to no other tenants: it was fetched with an account, or sent along."""
    in_use: bool
    key: str
    """What the engine knows it by."""


@runtime_checkable
class ImageKeeper(Protocol):
    """An engine that keeps images at its site."""

    async def list_images(self) -> list[SiteImage]:
        """All that are kept, those used last first; raises SiteUnavailable."""
        ...

    async def remove_image(self, key: str, tenant: str | None) -> bool:
        """Remove one, or for a tenant (None: for all) what it has of it; False if a run uses it."""
        ...


@runtime_checkable
class StagingEngine(Protocol):
    """An engine that moves files over a network, and says how far it is."""

    def moved(self, run_id: str) -> tuple[int, int] | None:
        """Bytes of a run's files that were moved, and that there are; None if none are being moved."""
        ...
