"""The limit of what a run's folders take on the disk.

File systems that limit folders by themselves are rare, so the supervisor measures: it walks through the working folder
and `/tmp` of its run, a little at a time, and never for more than a twentieth of the time, however many files there
are. Blocks count, not sizes, so that sparse files cost what they take; so do files that are deleted and still open.
A run that is over its limit is ended.

Without another limit a run may take nine tenths of the space that was free when it began, so that one job alone does
not fill the disk of everybody. Standard library only, like the supervisor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from isthmus.engines.local.log_limits import free_bytes

_FIRST, _LONGEST = 1.0, 10.0
_PIECE_SECONDS = 0.02
_SHARE = 20
"""Measuring takes at most one part in so many of the time."""
_GLANCE = 64
"""Entries between looks at the clock."""


class DiskLimit:
    """Measures the folders of one run, by and by."""

    def __init__(self, folders: Sequence[Path], limit: int, processes: Callable[[], set[int]], kept: str = "") -> None:
        """`processes` are those of the run. `kept` names what outlives it in folders with a limit of their own."""
        free = limit if kept else free_bytes(folders[0]) * 9 // 10
        self.limit = min(limit, free) if limit else free
        self._reported = bool(limit) and limit <= free
        self._kept = kept
        self._folders = [str(folder) for folder in folders]
        self._device = folders[0].stat().st_dev
        self._processes = processes
        self._walk = self._measure()
        self.over = ""
        """Why the run must end; empty while it need not."""
        self.measured = 0
        """Bytes, as of the last time that everything was looked at."""

    def look(self, elapsed: float) -> float:
        """Measure on for a moment; how many seconds may pass until the next time."""
        for seen in self._walk:
            if seen > self.limit:
                self.over, self.measured = self._too_much(), seen
                return _LONGEST
            return _PIECE_SECONDS * _SHARE
        self._walk = self._measure()
        return min(_LONGEST, max(_FIRST, elapsed / 10))

    @staticmethod
    def first() -> float:
        """Seconds before the first look: most runs are over by then."""
        return _FIRST

    def _measure(self) -> Iterator[int]:
        """Bytes found so far, each time that a moment is over, and at once when it is too much."""
        found, waiting, until = 0, list(self._folders), time.monotonic() + _PIECE_SECONDS
        deleted: set[int] = set()
        waiting += [f"/proc/{pid}/fd" for pid in self._processes()]
        while waiting:
            folder = waiting.pop()
            entries = self._open_deleted(folder, deleted) if folder.startswith("/proc/") else _entries(folder, waiting)
            try:
                for count, info in enumerate(entries):
                    found += info.st_blocks * 512 // max(1, info.st_nlink if stat.S_ISREG(info.st_mode) else 1)
                    if found > self.limit:
                        yield found
                    if count % _GLANCE == 0 and time.monotonic() > until:
                        yield found
                        until = time.monotonic() + _PIECE_SECONDS
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:  # where nobody can look, anything could lie
                    yield self.limit + 1
        if found > self.limit:
            yield found
        self.measured = found

    def _open_deleted(self, folder: str, seen: set[int]) -> Iterator[os.stat_result]:
        """Files that a process has open and that no folder shows."""
        for path in Path(folder).iterdir():
            with contextlib.suppress(OSError):
                info = path.stat()
                ours = stat.S_ISREG(info.st_mode) and info.st_dev == self._device
                if ours and not info.st_nlink and info.st_ino not in seen:
                    seen.add(info.st_ino)
                    yield info

    def _too_much(self) -> str:
        size = f"{self.limit / 2**30:.1f} GiB" if self.limit >= 2**30 else f"{self.limit / 2**20:.0f} MiB"
        if self._kept:
            return f"{self._kept} that are kept for jobs took more than {size} of disk. See isthmus images."
        why = "" if self._reported else ", nine tenths of what was free when it began"
        return f"The job's working folder and /tmp took more than {size} of disk{why}, or are nested too deeply."


def _entries(folder: str, folders: list[str]) -> Iterator[os.stat_result]:
    """What lies in a folder; the folders in it are noted, and links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone meanwhile
                continue
            if stat.S_ISDIR(info.st_mode):
                folders.append(entry.path)
            yield info
