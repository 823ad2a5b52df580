"""The limit of a run's logs.

A job writes straight into its log file: nothing stands in between, nothing has to keep up with it. The supervisor looks
at the size now and then and once after the end. A log that has become too long loses its middle: the first half of what
is allowed stays, a line marks the place, and the latest output follows. The job, which always appends, goes on behind.

No log takes more than a quarter of the space that was free when the run began, so that one job cannot fill the disk of
everybody. It uses nothing but the standard library, like the supervisor.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

LEAST_BYTES = 64 * 1024
_TAIL_BYTES = 1 << 20
_SHORTEST, _LONGEST = 0.1, 1.0
_LITTLE_BYTES = 256 * 1024


class LogLimit:
    """Keeps the logs of one run within their limit."""

    def __init__(self, paths: Sequence[Path], limit: int) -> None:
        self._paths = tuple(path for path in paths if path.exists())
        self._limit = allowed(limit, free_bytes(self._paths[0])) if self._paths else limit
        self._dropped = dict.fromkeys(self._paths, 0)

    @staticmethod
    def pause(elapsed: float) -> float:
        """Seconds until the next look at a run that is so old: most runs are over before the first."""
        return min(_LONGEST, max(_SHORTEST, elapsed / 10))

    def hold(self) -> None:
        """Shorten what has become too long."""
        for path in self._paths:
            try:
                if path.stat().st_size > self._limit:
                    self._dropped[path] += cut(path, self._limit, self._dropped[path])
            except OSError:
                continue  # without space, or without the file, there is nothing to gain; looked at again later

    def disk_is_full(self) -> bool:
        """Whether the disk has next to no space left."""
        return bool(self._paths) and free_bytes(self._paths[0]) < _LITTLE_BYTES


def allowed(limit: int, free: int) -> int:
    """The limit in bytes, where so much is free."""
    return max(LEAST_BYTES, min(limit, free // 4))


def cut(path: Path, limit: int, before: int = 0) -> int:
    """Remove the middle of a file that others append to; how many bytes. `before` were removed earlier.

    What is written between reading the end and cutting is lost with the middle.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        head, length = limit // 2, min(limit // 4, _TAIL_BYTES)
        if size <= head + length:
            return 0
        tail = os.pread(fd, length, size - length)
        os.ftruncate(fd, head)
        dropped = size - head - len(tail)
        content = memoryview(mark(before + dropped, limit) + tail)
        while content:
            content = content[os.write(fd, content) :]
        return dropped
    finally:
        os.close(fd)


def mark(dropped: int, limit: int) -> bytes:
    """The line at the place of the cut."""
    return f"\n[isthmus: {dropped} bytes of output were dropped here; this log is limited to {limit} bytes]\n".encode()


def free_bytes(path: Path) -> int:
    """What an ordinary program could still write on the disk of a file."""
    try:
        seen = os.statvfs(path)
    except OSError:
        return 0
    return seen.f_bavail * seen.f_frsize
