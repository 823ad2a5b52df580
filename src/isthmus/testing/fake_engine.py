"""An engine in memory: for tests of everything above engines, and for benchmarks with ten thousand jobs.

A `FakeMachine` is the world that survives: its runs, how often each was started, the faults to make. A `FakeEngine`
is one control plane's view of it; several may share a machine, as two control planes share a site, and a new one on
the same machine is a restarted control plane.

How a run ends is decided by `machine.outcome(run)`: at once, after some seconds, or only when the test calls `end`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from isthmus._kit.clock import utcnow
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import (
    Capabilities,
    EndReason,
    FileSink,
    FileSource,
    Inventory,
    LogReader,
    Observation,
    Run,
    RunState,
    RunUsage,
    Stream,
)
from isthmus.errors import EngineRefused, NotFound, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import Capacity, SiteNode


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run goes. `after` is the seconds from its start to its end; None: it ends when it is asked to."""

    after: float | None = 0.0
    exit_code: int | None = 0
    signal: str | None = None
    reason: EndReason = EndReason.COMPLETED
    message: str = ""
    log: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    usage: RunUsage | None = None


@dataclass(slots=True)
class Faults:
    """What goes wrong, until it is set back."""

    unavailable: str = ""
    """Every call fails with SiteUnavailable and this message."""
    refuse: str = ""
    """Every new run is refused with this message."""
    lose_replies: int = 0
    """So many submissions are carried out and then fail as if the reply were lost."""
    delay: float = 0.0
    """Seconds that every call takes longer."""
    silent: bool = False
    """Ends are not reported through `changes`."""


@dataclass(slots=True)
class FakeRun:
    """A run, as the machine knows it."""

    run: Run
    seen: Observation
    outcome: Outcome
    log: bytearray
    samples: bytearray = field(default_factory=bytearray)
    tidy: bool = False


class FakeMachine:
    """The world of a fake engine."""

    def __init__(
        self, *, cpus: float = 1e6, memory_bytes: int = 2**60, devices: Mapping[str, int] | None = None
    ) -> None:
        self.capacity = Capacity(cpus=cpus, memory_bytes=memory_bytes, devices=dict(devices or {}))
        self.runs: dict[str, FakeRun] = {}
        self.starts: Counter[str] = Counter()
        """How often each run was started; never more than once, if the contract holds."""
        self.cancels: Counter[str] = Counter()
        self.barred: set[str] = set()
        """Runs that were cancelled before they came."""
        self.faults = Faults()
        self.outcome: Callable[[Run], Outcome] = lambda _run: Outcome()
        self.now: Callable[[], datetime] = utcnow
        self.opened: set[FakeEngine] = set()
        """The engines that are open."""
        self._listeners: set[_LogListener] = set()
        self._followers: dict[str, set[asyncio.Future[None]]] = {}

    def submit(self, run: Run, *, queued: bool) -> Observation:
        """Take a run, once; start it unless there is a queue."""
        known = self.runs.get(run.id)
        if known is None and run.id in self.barred:
            return Observation(RunState.ENDED, reason=EndReason.CANCELLED, message="Cancelled before it was started.")
        if known is None:
            outcome = self.outcome(run)
            seen = Observation(RunState.QUEUED, engine_id=f"fake-{len(self.runs) + 1}")
            known = self.runs[run.id] = FakeRun(run, seen, outcome, bytearray(outcome.log))
            if not queued:
                self.start(run.id)
        return known.seen

    def start(self, run_id: str) -> None:
        """Let a run begin."""
        run = self.runs[run_id]
        self.starts[run_id] += 1
        run.seen = replace(run.seen, state=RunState.RUNNING, started_at=self.now())
        after = run.outcome.after
        if after == 0:
            asyncio.get_running_loop().call_soon(self._end_by_itself, run_id)
        elif after is not None:
            asyncio.get_running_loop().call_later(after, self._end_by_itself, run_id)
        self.notify(run_id)

    def end(self, run_id: str, outcome: Outcome | None = None) -> None:
        """Let a run end, as its outcome says or as this one does."""
        run = self.runs[run_id]
        if run.seen.state is RunState.ENDED:
            return
        how = run.outcome = outcome or run.outcome
        now = self.now()
        elapsed = (now - run.seen.started_at).total_seconds() if run.seen.started_at else 0.0
        run.seen = replace(
            run.seen,
            state=RunState.ENDED,
            ended_at=now,
            reason=how.reason,
            message=how.message,
            exit_code=how.exit_code,
            signal=how.signal,
            usage=how.usage or RunUsage(elapsed_seconds=elapsed),
        )
        self.notify(run_id)

    def correct(self, run_id: str, usage: RunUsage) -> None:
        """Learn, after its end, what a run really used."""
        run = self.runs[run_id]
        run.seen = replace(run.seen, usage=usage)
        self.notify(run_id)

    def write_log(self, run_id: str, data: bytes) -> None:
        """Let a run write."""
        self.runs[run_id].log += data
        self._wake(run_id)

    def vanish(self, run_id: str) -> None:
        """Lose a run without a trace, as an engine that forgets does."""
        self.runs.pop(run_id, None)
        self.notify(run_id)

    def notify(self, run_id: str) -> None:
        """The run changed."""
        self._wake(run_id)
        if not self.faults.silent:
            for listener in self._listeners:
                listener.add(run_id)

    def _end_by_itself(self, run_id: str) -> None:
        run = self.runs.get(run_id)
        if run is not None and run.seen.state is RunState.RUNNING:
            self.end(run_id)

    def _wake(self, run_id: str) -> None:
        for future in self._followers.get(run_id, ()):
            if not future.done():
                future.set_result(None)

    async def follow(self, run_id: str, seconds: float) -> None:
        """Wait for the run to write or change."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        followers = self._followers.setdefault(run_id, set())
        followers.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            followers.discard(future)
            if not followers:
                self._followers.pop(run_id, None)

    def listen(self) -> _LogListener:
        """Be notified of changes."""
        listener = _LogListener(set(self.runs))
        self._listeners.add(listener)
        return listener

    def ignore(self, listener: _LogListener) -> None:
        """No longer."""
        self._listeners.discard(listener)


class _LogListener:
    def __init__(self, pending: set[str]) -> None:
        self._pending = pending
        self._event = asyncio.Event()

    def add(self, run_id: str) -> None:
        self._pending.add(run_id)
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def take(self) -> set[str]:
        taken, self._pending = self._pending, set()
        self._event.clear()
        return taken


class FakeEngine:
    """One control plane's view of a fake machine."""

    def __init__(self, machine: FakeMachine | None = None, *, queues: bool = False) -> None:
        self.machine = machine or FakeMachine()
        self.capabilities = Capabilities(queues=queues, corrects=True)
        self.tasks = SupervisedTasks()

    async def open(self) -> None:
        """Connect."""
        await self._reach()
        self.machine.opened.add(self)
        self.tasks.start("fake-watcher", asyncio.Event().wait)

    async def close(self) -> None:
        """Let go. Runs go on."""
        self.machine.opened.discard(self)
        await self.tasks.close()

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """The machine's capacity."""
        await self._reach()
        capacity = self.machine.capacity
        node = SiteNode(
            name="fake", cpus=capacity.cpus, memory_bytes=capacity.memory_bytes, devices=dict(capacity.devices)
        )
        return Inventory(version="fake", capacity=capacity.model_copy(deep=True), nodes=(node,))

    def check(self, run: Run) -> None:
        """Refuse what the test wants refused."""
        if self.machine.faults.refuse:
            raise EngineRefused(self.machine.faults.refuse)

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Start the run, or find it."""
        await self._reach()
        if run.id not in self.machine.runs:
            self.check(run)
        seen = self.machine.submit(run, queued=self.capabilities.queues)
        if self.machine.faults.lose_replies > 0:
            self.machine.faults.lose_replies -= 1
            raise SiteUnavailable("The reply was lost.")
        return seen

    async def observe(self, run_id: str) -> Observation | None:
        """What is known of a run."""
        await self._reach()
        run = self.machine.runs.get(run_id)
        return None if run is None else run.seen

    async def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs that changed."""
        listener = self.machine.listen()
        try:
            yield listener.take()
            while True:
                await listener.wait()
                yield listener.take()
        finally:
            self.machine.ignore(listener)

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """End the run."""
        await self._reach()
        if run_id in self.machine.runs:
            self.machine.cancels[run_id] += 1
            self.machine.end(run_id, Outcome(exit_code=None, signal="SIGTERM", reason=EndReason.CANCELLED))
        else:
            self.machine.barred.add(run_id)

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the outcome's files that match."""
        await self._reach()
        run = self._known(run_id)
        wanted = {
            path: content
            for path, content in ({} if run.tidy else run.outcome.files).items()
            if any(_matches(path, pattern) for pattern in patterns)
        }
        if wanted:
            with tempfile.TemporaryDirectory() as folder:
                for path, content in wanted.items():
                    source = Path(folder) / "content"
                    source.write_bytes(content)
                    await sink.add(path, source, 0o644)
        return []

    async def tidy(self, run_id: str) -> None:
        """Drop the files of an ended run."""
        await self._reach()
        run = self.machine.runs.get(run_id)
        if run is not None and run.seen.state is RunState.ENDED:
            run.tidy = True

    async def forget(self, run_id: str) -> None:
        """Drop an ended run."""
        await self._reach()
        run = self.machine.runs.get(run_id)
        if run is not None and run.seen.state is RunState.ENDED:
            del self.machine.runs[run_id]

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of the log."""
        await self._reach()
        run = self._known(run_id)
        return bytes(run.log[offset : offset + size]) if stream is Stream.STDOUT else b""

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal."""
        await self._reach()
        return bytes(self._known(run_id).samples[offset : offset + size])

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long the log is."""
        await self._reach()
        run = self._known(run_id)
        return len(run.log) if stream is Stream.STDOUT else 0

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for the log to grow or the run to end."""
        await self._reach()
        run = self._known(run_id)
        if len(run.log) <= offset and run.seen.state is not RunState.ENDED:
            await self.machine.follow(run_id, timeout)

    async def open_to_read(self) -> LogReader:
        """Another view of the machine."""
        await self._reach()
        return FakeEngine(self.machine)

    async def _reach(self) -> None:
        faults = self.machine.faults
        if faults.delay:
            await asyncio.sleep(faults.delay)
        if faults.unavailable:
            raise SiteUnavailable(faults.unavailable)

    def _known(self, run_id: str) -> FakeRun:
        with contextlib.suppress(KeyError):
            return self.machine.runs[run_id]
        raise NotFound(f"This site has no run {run_id!r}.")


def _matches(path: str, pattern: str) -> bool:
    """Like an engine's patterns, without their finer points: a folder stands for everything below it."""
    parts = Path(path)
    if pattern == "**" or any(parent.match(pattern) for parent in [parts, *parts.parents][:-1]):
        return True
    return "**/" in pattern and parts.match(pattern.replace("**/", ""))
