"""The output and the journal of jobs for the API: each job's site has them, whichever replica is asked."""

from __future__ import annotations

import asyncio

from isthmus.engines.base import Engine, Stream
from isthmus.errors import NotFound
from isthmus.reconcilers.engine_room import EngineRoom
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import SITE
from isthmus.resources.sites import Site
from isthmus.store.base import Key, Store

from .drivers import Drivers


class EngineLogs:
    """Reads logs through the engines: the leader's open ones, or on other replicas its own."""

    def __init__(self, store: Store, engines: EngineRoom, drivers: Drivers) -> None:
        self._store, self._engines, self._drivers = store, engines, drivers
        self._own: dict[str, Engine] = {}
        self._opening = asyncio.Lock()

    async def read(self, job: Job, attempt: int, stream: Stream, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        if (engine := await self._engine(job, attempt)) is None:
            return b""
        try:
            return await engine.read_log(job.run(attempt), stream, offset, size)
        except NotFound:
            return b""

    async def size(self, job: Job, attempt: int, stream: Stream) -> int:
        """How long it is now."""
        if (engine := await self._engine(job, attempt)) is None:
            return 0
        try:
            return await engine.log_size(job.run(attempt), stream)
        except NotFound:
            return 0

    async def wait(self, job: Job, attempt: int, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when there may be more."""
        if (engine := await self._engine(job, attempt)) is None:
            await asyncio.sleep(min(timeout, 0.1))
        else:
            await engine.wait_log(job.run(attempt), stream, offset, timeout)

    async def output(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the output, for who looks for reported values in it."""
        return await self.read(job, attempt, Stream.STDOUT, offset, size)

    async def samples(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the journal."""
        if (engine := await self._engine(job, attempt)) is None:
            return b""
        try:
            return await engine.read_samples(f"{job.uid}.{attempt}", offset, size)
        except NotFound:
            return b""

    async def close(self) -> None:
        """Close the engines opened for reading."""
        for engine in self._own.values():
            await engine.close()
        self._own.clear()

    async def _engine(self, job: Job, attempt: int) -> Engine | None:
        """The engine that has (or will have) the run; None before the job has a site."""
        site = job.status.site
        if attempt != job.status.attempt:
            site = next((past.site for past in job.status.tries or () if past.attempt == attempt), None)
        if site is None:
            return None
        return self._engines.find(site) or self._own.get(site) or await self._open(site)

    async def _open(self, name: str) -> Engine:
        async with self._opening:
            if engine := self._own.get(name):
                return engine
            record = await self._store.get(Key(SITE.name, "", name))
            engine = await self._drivers.make(Site.model_validate(record.obj))
            await engine.open()
            self._own[name] = engine
            return engine
