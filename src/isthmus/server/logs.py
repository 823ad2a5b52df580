"""Output, journal and files of jobs for the API: each job's site has them, whichever replica is asked."""

from __future__ import annotations

import asyncio

from isthmus.engines.base import FilePart, FolderListing, FolderReader, LogReader, ReadingEngine, Stream
from isthmus.errors import EngineRefused, NotFound, SiteUnavailable
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import SITE
from isthmus.resources.sites import Site
from isthmus.store.base import Key, Store

from .drivers import Drivers


class EngineLogs:
    """Reads logs through the engines that are open here, or on other replicas through readers that change nothing."""

    def __init__(self, store: Store, engines: EngineRegistry, drivers: Drivers) -> None:
        self._store, self._engines, self._drivers = store, engines, drivers
        self._own: dict[str, LogReader] = {}
        self._opening = asyncio.Lock()

    async def read(self, job: Job, attempt: int, stream: Stream, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        if (reader := await self._reader(job, attempt)) is None:
            return b""
        try:
            return await reader.read_log(job.run(attempt), stream, offset, size)
        except NotFound:
            return b""

    async def size(self, job: Job, attempt: int, stream: Stream) -> int:
        """How long it is now."""
        if (reader := await self._reader(job, attempt)) is None:
            return 0
        try:
            return await reader.log_size(job.run(attempt), stream)
        except NotFound:
            return 0

    async def wait(self, job: Job, attempt: int, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when there may be more."""
        if (reader := await self._reader(job, attempt)) is None:
            await asyncio.sleep(min(timeout, 0.1))
        else:
            await reader.wait_log(job.run(attempt), stream, offset, timeout)

    async def output(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the output, for who looks for reported values in it."""
        return await self.read(job, attempt, Stream.STDOUT, offset, size)

    async def samples(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the journal."""
        if (reader := await self._reader(job, attempt)) is None:
            return b""
        try:
            return await reader.read_samples(job.run(attempt), offset, size)
        except NotFound:
            return b""

    async def list_files(self, job: Job, most: int) -> FolderListing:
        """What is in the folder of the present attempt."""
        return await (await self._folder(job)).list_files(job.run_id, most)

    async def read_file(self, job: Job, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the present attempt."""
        return await (await self._folder(job)).read_file(job.run_id, path, offset, size)

    async def _folder(self, job: Job) -> FolderReader:
        reader: object = await self._reader(job, job.status.attempt)
        if reader is None:
            raise NotFound(f"job {job.name} has no folder yet")
        if not isinstance(reader, FolderReader):
            raise EngineRefused(f"the files of a running job cannot be seen at site {job.status.site}")
        return reader

    async def close(self) -> None:
        """Close the engines opened for reading."""
        for reader in self._own.values():
            await reader.close()
        self._own.clear()

    async def _reader(self, job: Job, attempt: int) -> LogReader | None:
        """Who reads the run's log; None before the job has a site."""
        site = job.status.site
        if attempt != job.status.attempt:
            site = next((past.site for past in job.status.tries or () if past.attempt == attempt), None)
        if site is None:
            return None
        return self._engines.reader(site) or self._own.get(site) or await self._open(site)

    async def _open(self, name: str) -> LogReader:
        """Open a site to read only: the control plane that leads works there, and nobody else."""
        async with self._opening:
            if reader := self._own.get(name):
                return reader
            record = await self._store.get(Key(SITE.name, "", name))
            engine = await self._drivers.make(Site.model_validate(record.obj))
            if not isinstance(engine, ReadingEngine):
                raise SiteUnavailable(f"the logs of site {name} cannot be read")
            self._own[name] = await engine.open_to_read()
            return self._own[name]
