"""Reading what runs left in their folders: it changes nothing, so that any process of this machine may do it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from isthmus._kit.files import read_regular
from isthmus._kit.numbers import whole
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FilePart, FolderListing, RunDisk, Stream
from isthmus.engines.browsing import list_folder, read_part
from isthmus.errors import NotFound, SiteUnavailable
from isthmus.metrics import count_task_failure

from .layout import Layout, RunFolder, read_record, valid_run_id
from .logs import LogWatcher, read_at, size_of

T = TypeVar("T")
_MOST_BYTES = 2**60


def measured(layout: Layout) -> dict[str, RunDisk]:
    """What each run takes of the disk: its logs by looking, its folders as its supervisor noted. Raises OSError."""
    found = {}
    for run_id in layout.run_ids():
        folder = layout.run(run_id)
        kept = (folder.log("stdout"), folder.log("stderr"), folder.samples)
        found[run_id] = RunDisk(sum(map(_blocks, kept)), _noted(folder) if folder.work.exists() else 0)
    return found


def _blocks(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_blocks * 512
    except OSError:  # not there yet, or no more
        return 0


def _noted(folder: RunFolder) -> int:
    try:
        return min(whole(read_regular(folder.disk, 32)) or 0, _MOST_BYTES)
    except OSError:  # not measured yet, or not by us
        return 0


class LocalReader:
    """Reads logs and journals of the runs of one root."""

    def __init__(self, layout: Layout, tasks: SupervisedTasks | None = None) -> None:
        """Without tasks of an owner, it has its own."""
        self._layout = layout
        self._own = SupervisedTasks(failed=count_task_failure) if tasks is None else None
        self._logs = LogWatcher(tasks or self._own or SupervisedTasks())

    def open(self) -> None:
        """Begin; raises SiteUnavailable if nothing was ever run here."""
        if not self._layout.runs.is_dir():
            raise SiteUnavailable(f"The folder of runs {self._layout.root} is not there.")
        self._logs.open()

    async def close(self) -> None:
        """End, and wake everybody."""
        if self._own is not None:
            await self._own.close()
        await self._logs.close()

    def folder(self, run_id: str) -> RunFolder:
        """The folder of a run; raises NotFound."""
        folder = self._layout.run(run_id) if valid_run_id(run_id) else None
        if folder is None or not folder.path.exists():
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        return folder

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        return await asyncio.to_thread(read_at, self.folder(run_id).log(stream), offset, size)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal; empty for a run that was never sampled."""
        return await asyncio.to_thread(read_at, self.folder(run_id).samples, offset, size)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        return size_of(self.folder(run_id).log(stream))

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow or the run to end."""
        folder = self.folder(run_id)
        if not folder.ended.exists():
            await self._logs.wait(folder.log(stream), offset, timeout)

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await self._look(run_id, list_folder, self.folder(run_id).work, most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        folder = self.folder(run_id)
        owner = (await asyncio.to_thread(read_record, folder.spec) or {}).get("owner", -1)
        return await self._look(run_id, read_part, folder.work, path, owner, offset, size)

    async def _look(self, run_id: str, look: Callable[..., T], *args: object) -> T:
        try:
            return await asyncio.to_thread(look, *args)
        except OSError as error:
            raise SiteUnavailable(f"The working folder of run {run_id} cannot be read: {error}.") from error

    def wake(self, run_id: str) -> None:
        """The run may have ended: nobody need wait any longer."""
        for stream in Stream:
            self._logs.wake(self._layout.run(run_id).log(stream))
