"""A control plane in this process whose store, clock, site and leadership can be made to fail at will.

The reconcilers run on a fake machine and on a loop whose time jumps ahead whenever nothing is left to do, so that
an hour of backoff takes no time. The store is a real one, in a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from isthmus._kit.clock import utcnow
from isthmus.engines.base import Engine
from isthmus.errors import Conflict, NotFound, StoreUnavailable
from isthmus.reconcilers.engine_room import EngineRoom
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB, SITE, TENANT, Kind
from isthmus.resources.sites import Site
from isthmus.resources.validation import validate
from isthmus.runtime.leading import Leadership
from isthmus.server.control_plane import ControlPlane
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Key, Page, Part, Propagation, Query, Record, Store
from isthmus.store.opening import open_store
from isthmus.testing.fake_engine import FakeEngine, FakeMachine
from isthmus.testing.servers import ServerProcess

T = TypeVar("T")


# Time that jumps


class _Selector(selectors.DefaultSelector):
    """Does not wait for a timer: it sets the clock on, unless a thread is at work, which takes real time."""

    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or self.loop.threads:
            return super().select(timeout if timeout is None else min(timeout, 0.05))
        found = super().select(0)
        if not found:
            self.loop.ahead += timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual."""

    def __init__(self) -> None:
        self.ahead, self.threads = 0.0, 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return super().time() + self.ahead

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.threads -= 1


@pytest.fixture
def on_virtual_time() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on a loop whose time jumps."""

    def run(work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(work)

    return run


# A store that fails


class FaultyStore:
    """A store in front of another: refuses, loses answers, is away."""

    whole_at_once = True

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False
        self.conflicts = 0.0
        """Share of updates that are refused because somebody else was faster."""
        self.lost = 0.0
        """Share of writes that are made, and whose answer is lost."""
        self.chance = random.Random(1)
        self.updates: list[tuple[Key, str]] = []
        """Every update of a job that was made, with the phase it wrote."""

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")

    def _maybe_lost(self) -> None:
        if self.chance.random() < self.lost:
            raise StoreUnavailable("the answer was lost")

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        self._reach()
        record = await self._store.create(kind, obj)
        self._maybe_lost()
        return record

    async def get(self, key: Key) -> Record:
        self._reach()
        return await self._store.get(key)

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        self._reach()
        if self.chance.random() < self.conflicts:
            await asyncio.sleep(0)
            raise Conflict("somebody else was faster")
        record = await self._store.update(kind, obj, part)
        if kind is JOB:
            self.updates.append((record.key, record.obj["status"]["phase"]))
        self._maybe_lost()
        return record

    async def delete(
        self,
        key: Key,
        *,
        uid: str | None = None,
        version: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Record:
        self._reach()
        return await self._store.delete(key, uid=uid, version=version, propagation=propagation)

    async def list(self, query: Query, *, limit: int | None = None, continue_: str | None = None) -> Page:
        self._reach()
        return await self._store.list(query, limit=limit, continue_=continue_)

    def watch(self, query: Query, *, since: int | None = None, bookmarks: float | None = None) -> Any:
        self._reach()
        return self._store.watch(query, since=since, bookmarks=bookmarks)

    async def version(self) -> int:
        self._reach()
        return await self._store.version()


class Toggled(Leadership):
    """Leads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = True

    @property
    def held(self) -> bool:
        return self.leads


# The plane


class Plane:
    """A control plane over a fake machine, and the means to disturb it."""

    def __init__(self, store: Store, folder: Path, **capacity: Any) -> None:
        self.real = store
        self.store = FaultyStore(store)
        self.machine = FakeMachine(**capacity)
        self.machines: dict[str, FakeMachine] = {}
        """Machines of other sites, by their names."""
        self.blobs = DirectoryBlobs(folder / "files")
        self.leadership = Toggled()
        self.shift = timedelta()
        self.task: asyncio.Task[None] | None = None
        self.most_taken = 0.0
        self.machine.now = self.now

    def now(self) -> datetime:
        """The clock of the control plane; it goes on with the loop's time."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        return utcnow() + timedelta(seconds=loop.ahead) + self.shift

    async def prepare(self) -> None:
        """A tenant and a site."""
        await self.create(TENANT, "default", {})
        await self.create(SITE, "fake", {"driver": "fake", "probeInterval": "2s"})

    async def create(self, kind: Kind, name: str, spec: dict[str, Any], **metadata: Any) -> Record:
        """Keep an object."""
        meta = {"name": name, **({"namespace": "default"} if kind.namespaced else {}), **metadata}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}
        return await self.real.create(kind, validate(kind, obj))

    async def make_engine(self, site: Site) -> Engine:
        """The engine of every site."""
        return FakeEngine(self.machines.get(site.name, self.machine))

    def start(self) -> None:
        """Begin to reconcile."""
        plane = ControlPlane(
            store=self.store,
            blobs=self.blobs,
            engines=EngineRoom(),
            make_engine=self.make_engine,
            leadership=self.leadership,
            now=self.now,
        )
        self.task = asyncio.create_task(plane.run())

    async def stop(self) -> None:
        """Stop as a crash does: nothing is finished."""
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def submit(self, name: str, **spec: Any) -> Record:
        """Accept a job."""
        return await self.create(JOB, name, {"command": ["true"], **spec})

    async def job(self, name: str) -> Job | None:
        """A job as the store has it."""
        try:
            return Job.model_validate((await self.real.get(Key(JOB.name, "default", name))).obj)
        except NotFound:
            return None

    async def jobs(self) -> list[Job]:
        """All jobs."""
        return [Job.model_validate(record.obj) for record in (await self.real.list(Query(JOB))).records]

    async def change(self, name: str, **fields: Any) -> None:
        """Change the spec of a job, as its owner does."""
        while True:
            record = await self.real.get(Key(JOB.name, "default", name))
            try:
                await self.real.update(JOB, {**record.obj, "spec": {**record.obj["spec"], **fields}})
            except Conflict:
                continue
            return

    async def delete(self, name: str, **options: Any) -> None:
        """Delete a job, as its owner does."""
        await self.real.delete(Key(JOB.name, "default", name), **options)

    async def until(self, found: Callable[[], Coroutine[Any, Any, T | None]], *, seconds: float = 3600) -> T:
        """What `found` gives once it is something. Seconds are virtual."""
        loop = asyncio.get_running_loop()
        pause, deadline = 0.05, loop.time() + seconds
        while True:
            assert self.task is None or not self.task.done(), "the control plane ended"
            self.look()
            if result := await found():
                return result
            assert loop.time() < deadline, "did not happen; left: " + ", ".join(
                f"{job.name} {job.status.phase} {job.status.reason} {job.status.message}"
                for job in await self.jobs()
                if not job.status.phase.terminal
            )
            await asyncio.sleep(pause)
            pause = min(pause * 1.1, 5.0)

    def look(self) -> None:
        """Note how much of the machine is taken just now."""
        running = [run for run in self.machine.runs.values() if run.seen.state.value == "Running"]
        self.most_taken = max(self.most_taken, sum(run.run.milli_cpus for run in running) / 1000)

    async def phase(self, name: str, *phases: str, seconds: float = 3600) -> Job:
        """The job once it is in one of the phases."""

        async def there() -> Job | None:
            job = await self.job(name)
            return job if job is not None and job.status.phase in phases else None

        return await self.until(there, seconds=seconds)

    async def ended(self, name: str, *, seconds: float = 3600) -> Job:
        """The job once it has ended."""
        return await self.phase(name, "Succeeded", "Failed", "Cancelled", seconds=seconds)

    async def all_ended(self, *, seconds: float = 3600) -> list[Job]:
        """All jobs once they have ended."""

        async def over() -> list[Job] | None:
            jobs = await self.jobs()
            return jobs if all(job.status.phase.terminal for job in jobs) else None

        return await self.until(over, seconds=seconds)

    async def gone(self, name: str, *, seconds: float = 3600) -> None:
        """Once the job is no more."""

        async def away() -> bool:
            return await self.job(name) is None

        await self.until(away, seconds=seconds)


MakePlane = Callable[..., contextlib.AbstractAsyncContextManager[Plane]]


@pytest.fixture
def plane(tmp_path: Path) -> MakePlane:
    """Makes a running plane: `async with plane(cpus=4) as it:`."""

    @contextlib.asynccontextmanager
    async def make(**capacity: Any) -> AsyncIterator[Plane]:
        store = await open_store(tmp_path / "plane.db")
        made = Plane(store, tmp_path, **{"cpus": 4, **capacity})
        try:
            await made.prepare()
            made.start()
            yield made
        finally:
            if made.task is not None and not made.task.done():
                await made.stop()
            await store.close()

    return make


# Whole servers


class Answer(NamedTuple):
    """What came back, whatever it was."""

    code: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def object(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def ask(
    server: ServerProcess,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    token: str | None = None,
    **headers: str,
) -> Answer:
    """One raw request. The token is the administrator's unless told otherwise; an empty one sends none."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    token = server.token if token is None else token
    given = {"Authorization": f"Bearer {token}"} if token else {}
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    given["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    try:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.getheaders()))
    finally:
        connection.close()


def memory_of(server: ServerProcess) -> float:
    """MB of memory that the server holds now."""
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
