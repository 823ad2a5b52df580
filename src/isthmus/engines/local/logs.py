"""Waiting for logs to grow: one inotify descriptor for all followers, and no thread.

The kernel reports the first write after a watch was set (`IN_ONESHOT`), so a job that writes a million lines costs
one event per waiting, not per line. A slow tick looks at the sizes as well: it serves writes that inotify does not
report (through a memory map), and everything where the kernel's watches have run out.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from pathlib import Path

from isthmus._kit.files import NotRegular, open_regular
from isthmus._kit.tasks import SupervisedTasks

TICK_SECONDS = 0.5
_IN_MODIFY = 0x2
_IN_ONESHOT = 0x80000000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class LogWatcher:
    """Wakes those who wait for a file to grow."""

    def __init__(self, tasks: SupervisedTasks) -> None:
        self._tasks = tasks
        self._inotify = -1
        self._waiting: dict[Path, set[asyncio.Future[None]]] = {}
        self._offsets: dict[asyncio.Future[None], int] = {}
        self._paths: dict[int, Path] = {}

    def open(self) -> None:
        """Begin."""
        self._inotify = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify >= 0:
            asyncio.get_running_loop().add_reader(self._inotify, self._read)

    async def close(self) -> None:
        """End, and wake everybody."""
        await self._tasks.stop("local-log-ticker", of="logs")
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1
        for path in list(self._waiting):
            self.wake(path)

    async def wait(self, path: Path, offset: int, seconds: float) -> None:
        """Return when the file is longer than `offset`, when `wake` is called, or after so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(path, set()).add(future)
        self._offsets[future] = offset
        self._tasks.spawn("local-log-ticker", self._tick, of="logs")
        try:
            self._watch(path)
            # Looked at after the watch was set: what was written in between is seen here.
            if size_of(path) <= offset:
                await asyncio.wait([future], timeout=seconds)
        finally:
            self._offsets.pop(future, None)
            waiting = self._waiting.get(path)
            if waiting is not None:
                waiting.discard(future)
                if not waiting:
                    del self._waiting[path]

    def wake(self, path: Path) -> None:
        """Wake all who wait for this file."""
        for future in self._waiting.get(path, ()):
            if not future.done():
                future.set_result(None)

    def _watch(self, path: Path) -> None:
        if self._inotify >= 0:
            number = _libc.inotify_add_watch(self._inotify, os.fsencode(path), _IN_MODIFY | _IN_ONESHOT)
            if number >= 0:
                self._paths[number] = path

    def _read(self) -> None:
        try:
            data = os.read(self._inotify, 65536)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size + length
            if number == -1:  # events were lost: everybody looks
                for path in list(self._waiting):
                    self.wake(path)
            elif mask & _IN_MODIFY:
                if path_of := self._paths.get(number):
                    self.wake(path_of)
            else:  # IN_IGNORED: the watch is used up
                self._paths.pop(number, None)

    async def _tick(self) -> None:
        while self._waiting:
            await asyncio.sleep(TICK_SECONDS)
            for path, futures in list(self._waiting.items()):
                size = size_of(path)
                for future in futures:
                    if not future.done() and size > self._offsets[future]:
                        future.set_result(None)


def size_of(path: Path) -> int:
    """How long a log is; 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Part of a log; empty if there is none."""
    try:
        fd = open_regular(path)
    except (FileNotFoundError, NotRegular):
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
