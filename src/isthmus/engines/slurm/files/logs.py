"""Logs for any number of followers, with one reader for each log on the cluster's side.

All logs that somebody waits for are looked at together, several times a second. What was read last of a log is kept for
a moment: a thousand who follow the same log cost the cluster one read.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from isthmus._kit.tasks import SupervisedTasks
from isthmus.errors import IsthmusError

from .base import LogFile, RunFiles

log = logging.getLogger(__name__)

BLOCK = 256 * 2**10
KEPT = 64
"""Logs of which the last block is kept."""


@dataclass(slots=True)
class _Block:
    offset: int = 0
    data: bytes = b""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LogReaders:
    """Reads logs, and wakes those who wait for more."""

    def __init__(self, files: RunFiles, seconds: float, tasks: SupervisedTasks) -> None:
        self._files, self._seconds, self._tasks = files, seconds, tasks
        self._waiting: dict[LogFile, dict[asyncio.Future[None], int]] = {}
        self._blocks: dict[LogFile, _Block] = {}
        self.reads = 0
        """Made on the cluster's side so far."""

    async def close(self) -> None:
        """End, and wake everybody."""
        await self._tasks.stop("slurm-log-ticker", of="logs")
        for file in list(self._waiting):
            self.wake(file)

    async def read(self, file: LogFile, offset: int, size: int) -> bytes:
        """Part of a log; empty at its present end."""
        block = self._blocks.pop(file, None) or _Block()
        self._blocks[file] = block  # at the end: the one used longest ago goes first
        while len(self._blocks) > KEPT:
            self._blocks.pop(next(iter(self._blocks)))
        if not self._has(block, offset):
            async with block.lock:
                if not self._has(block, offset):
                    self.reads += 1
                    block.data = await self._files.read(file, offset, max(size, BLOCK)) or b""
                    block.offset = offset
        begin = offset - block.offset
        return block.data[begin : begin + size]

    @staticmethod
    def _has(block: _Block, offset: int) -> bool:
        return block.offset <= offset < block.offset + len(block.data)

    async def size(self, file: LogFile) -> int:
        """How long a log is now."""
        return (await self._files.sizes([file]))[0]

    async def wait(self, file: LogFile, offset: int, seconds: float) -> None:
        """Return when the log is longer than `offset`, when it is woken, or after so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(file, {})[future] = offset
        self._tasks.spawn("slurm-log-ticker", self._tick, of="logs")
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            waiting = self._waiting.get(file)
            if waiting is not None:
                waiting.pop(future, None)
                if not waiting:
                    del self._waiting[file]

    def wake(self, file: LogFile) -> None:
        """Wake all who wait for this log."""
        for future in self._waiting.get(file, ()):
            if not future.done():
                future.set_result(None)

    async def _tick(self) -> None:
        """Looks at once, then again and again, as long as anybody waits."""
        while self._waiting:
            files = list(self._waiting)
            try:
                sizes = await self._files.sizes(files)
            except IsthmusError as error:
                log.info("logs could not be looked at", extra={"error": str(error)})
                sizes = []
            for file, size in zip(files, sizes, strict=False):
                for future, offset in self._waiting.get(file, {}).items():
                    if size > offset and not future.done():
                        future.set_result(None)
            await asyncio.sleep(self._seconds)
