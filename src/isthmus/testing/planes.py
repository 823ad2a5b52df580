"""A control plane in this process whose store, clock, sites and leadership can be made to fail at will.

The reconcilers run on fake machines and on virtual time. The store is a real one, in a file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from isthmus.engines.base import Engine
from isthmus.errors import Conflict, NotFound
from isthmus.reconcilers.hosts.reconciler import MakeHostDriver, no_hosts
from isthmus.reconcilers.jobs.image_resolving import MakeClient
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB, SITE, TENANT, Kind
from isthmus.resources.sites import Site
from isthmus.runtime.leading import Leadership
from isthmus.server.control_plane import ControlPlane
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Key, Query, Record, Store
from isthmus.store.opening import open_store

from .fake_engine import FakeEngine, FakeMachine
from .faulty_store import FaultyStore
from .virtual_time import on_virtual_time, virtual_now

T = TypeVar("T")


class Toggled(Leadership):
    """Leads when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = True

    @property
    def held(self) -> bool:
        """As the test wants it."""
        return self.leads


class Plane:
    """A control plane over a fake machine, and the means to disturb it."""

    def __init__(self, store: Store, folder: Path, **capacity: Any) -> None:
        self.real = store
        self.store = FaultyStore(store)
        self.machine = FakeMachine(**capacity)
        self.machines: dict[str, FakeMachine] = {}
        """Machines of other sites, by their names."""
        self.queues = False
        """Whether the engines of sites have queues of their own; set before a site is opened."""
        self.images = False
        """Whether they run images; set before a site is opened."""
        self.make_registries: MakeClient | None = None
        """What asks registries; none: nobody does."""
        self.make_host: MakeHostDriver = no_hosts
        """What reaches machines from outside."""
        self.blobs = DirectoryBlobs(folder / "files")
        self.leadership = Toggled()
        self.shift = timedelta()
        self.task: asyncio.Task[None] | None = None
        self.most_taken = 0.0
        self.machine.now = self.now

    def now(self) -> datetime:
        """The clock of the control plane; it goes on with the loop's time."""
        return virtual_now() + self.shift

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
        engine = FakeEngine(self.machines.get(site.name, self.machine), queues=self.queues)
        engine.capabilities = replace(engine.capabilities, images=self.images)
        return engine

    def start(self) -> None:
        """Begin to reconcile."""
        plane = ControlPlane(
            store=self.store,
            blobs=self.blobs,
            engines=EngineRegistry(),
            make_engine=self.make_engine,
            leadership=self.leadership,
            make_registries=self.make_registries,
            make_host=self.make_host,
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
        await self.change_object(JOB, Key(JOB.name, "default", name), **fields)

    async def change_object(self, kind: Kind, key: Key, **fields: Any) -> None:
        """Change the spec of an object."""
        while True:
            record = await self.real.get(key)
            try:
                await self.real.update(kind, {**record.obj, "spec": {**record.obj["spec"], **fields}})
            except Conflict:
                continue
            return

    async def status(self, kind: Kind, name: str, **wanted: Any) -> dict[str, Any]:
        """The status of an object without a namespace once it says so."""

        async def there() -> dict[str, Any] | None:
            status: dict[str, Any] = (await self.real.get(Key(kind.name, "", name))).obj["status"]
            return status if all(status.get(field) == value for field, value in wanted.items()) else None

        return await self.until(there)

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

    async def waits(self, name: str, reason: str, *, seconds: float = 3600) -> Job:
        """The job once it waits for this reason."""

        async def there() -> Job | None:
            job = await self.job(name)
            return job if job is not None and job.status.reason == reason else None

        return await self.until(there, seconds=seconds)

    def path(self, name: str) -> list[str]:
        """The phases that were written of a job, in order."""
        found = ["Pending"]
        for key, phase in self.store.updates:
            if key.name == name and phase != found[-1]:
                found.append(phase)
        return found

    async def gone(self, name: str, *, seconds: float = 3600) -> None:
        """Once the job is no more."""

        async def away() -> bool:
            return await self.job(name) is None

        await self.until(away, seconds=seconds)


@contextlib.asynccontextmanager
async def running_plane(folder: Path, **capacity: Any) -> AsyncIterator[Plane]:
    """A plane with a tenant and a site, at work."""
    store = await open_store(folder / "plane.db")
    made = Plane(store, folder, **{"cpus": 4, **capacity})
    try:
        await made.prepare()
        made.start()
        yield made
    finally:
        if made.task is not None and not made.task.done():
            await made.stop()
        await store.close()


def with_plane(**capacity: Any) -> Callable[[Callable[[Plane], Coroutine[Any, Any, None]]], Callable[[Path], None]]:
    """Makes a test of a coroutine that is given a running plane, on virtual time."""

    def decorate(story: Callable[[Plane], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            async def whole() -> None:
                async with running_plane(tmp_path, **capacity) as plane:
                    await story(plane)

            on_virtual_time(whole())

        test.__name__, test.__doc__ = story.__name__, story.__doc__
        return test

    return decorate
