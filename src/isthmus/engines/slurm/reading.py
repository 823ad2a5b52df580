"""Reading logs and journals of runs by their records: it asks Slurm nothing, and changes nothing."""

from __future__ import annotations

from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FilePart, FolderListing, Stream
from isthmus.engines.slurm.batch import submissions
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.base import LogFile, RunFiles
from isthmus.engines.slurm.files.logs import LogReaders
from isthmus.errors import NotFound
from isthmus.metrics import count_task_failure

MOST_USERS = 10_000
"""Runs of which it is remembered to whom they belong; that never changes."""


class SlurmReader:
    """Reads what lies in the site's folder."""

    def __init__(self, files: RunFiles, log_seconds: float) -> None:
        self._files = files
        self._tasks = SupervisedTasks(failed=count_task_failure)
        self._logs = LogReaders(files, log_seconds, self._tasks)
        self._users: dict[str, str] = {}

    async def open(self) -> None:
        """Connect."""
        await self._files.open_to_read()

    async def close(self) -> None:
        """End, and wake everybody."""
        await self._tasks.close()
        await self._logs.close()
        await self._files.close()

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        return await self._logs.read(await self._file(run_id, stream.value), offset, size)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal that the batch script's sampler writes."""
        return await self._files.read(await self._file(run_id, "samples"), offset, size) or b""

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await self._files.list_work(run_id, await self._user(run_id), most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        return await self._files.read_work(run_id, await self._user(run_id), path, offset, size)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        return await self._logs.size(await self._file(run_id, stream.value))

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow. Whether the run has ended is not known here."""
        await self._logs.wait(await self._file(run_id, stream.value), offset, timeout)

    async def _file(self, run_id: str, name: str) -> LogFile:
        return LogFile(run_id, await self._user(run_id), name)

    async def _user(self, run_id: str) -> str:
        if (user := self._users.get(run_id)) is None:
            content = await self._files.read_record(run_id) if submissions.RUN_ID.fullmatch(run_id) else None
            user = records.load(run_id, content).user if content is not None else ""
            if not user:
                raise NotFound(f"This site has no run {run_id[:100]!r}.")
            if len(self._users) >= MOST_USERS:
                self._users.clear()
            self._users[run_id] = user
        return user
