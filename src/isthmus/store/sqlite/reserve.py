"""Space kept in reserve beside the database, so that things can be deleted when the disk is full.

Deleting and cancelling are writes, too. When SQLite finds no space, a piece of the reserve is given up: changes and
deletions go on with it, new objects of people are refused. Piece by piece: whatever filled the disk takes what it can
get. Once there is space for the whole reserve again, it is taken again, and all is as before.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 8 * 2**20
_PART = 16
_PIECE = 256 * 1024
_LITTLE = 128 * 1024


class Reserve:
    """A file that holds space."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".reserve")
        self._folder = database.parent
        self.held = False

    def take(self) -> bool:
        """Take the space if there is enough of it beyond, and say whether it is held."""
        if self.held:
            return True
        with contextlib.suppress(OSError):
            seen = os.statvfs(self._folder)
            size = min(RESERVE_BYTES, seen.f_blocks * seen.f_frsize // _PART)
            there = self._path.stat().st_size if self._path.exists() else 0
            if there < size and seen.f_bavail * seen.f_frsize < 2 * size:
                return False
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(fd, 0, max(size, 1))
                self.held = True
            except OSError:
                os.ftruncate(fd, 0)
            finally:
                os.close(fd)
        return self.held

    def is_short(self) -> bool:
        """Whether the disk has next to no space left beside the reserve."""
        try:
            seen = os.statvfs(self._folder)
        except OSError:
            return False
        return seen.f_bavail * seen.f_frsize < _LITTLE

    def give_up(self) -> bool:
        """Let a piece go; whether there was any to let go."""
        self.held = False
        with contextlib.suppress(OSError):
            if size := self._path.stat().st_size:
                os.truncate(self._path, max(0, size - _PIECE))
                return True
        return False
