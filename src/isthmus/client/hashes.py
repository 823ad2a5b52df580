"""Digests of files: read whole and unchanged, remembered while nothing about the file has changed.

A file is remembered by path, size, inode, mtime and ctime. Clocks of file systems are coarse: an edit right after
a hash may leave all of these as they were. So a file that changed within the last two seconds is never remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from isthmus.errors import Invalid

_CHUNK = 1 << 20
_YOUNG = 2_000_000_000
_TRIES = 3


def hash_file(path: str, shown: str) -> tuple[str, os.stat_result]:
    """The digest of a file and the state it was read in; raises Invalid if it keeps changing or cannot be read."""
    for _ in range(_TRIES):
        # NONBLOCK: a file swapped for a FIFO must not hang us. NOFOLLOW: one swapped for a link must not lead us out.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(shown, error) from None
        try:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise Invalid(f"{shown} changed into something that is not a file while it was being read; try again")
            hasher = hashlib.sha256()
            while chunk := os.read(descriptor, _CHUNK):
                hasher.update(chunk)
            after = os.fstat(descriptor)
        except OSError as error:
            raise unreadable(shown, error) from None
        finally:
            os.close(descriptor)
        if state_of(before) == state_of(after):
            return f"sha256:{hasher.hexdigest()}", after
    raise Invalid(
        f"{shown} changes while it is being read; stop what writes to it, or leave it out with a line in .isthmusignore"
    )


def unreadable(shown: str, error: OSError) -> Invalid:
    """The error for a file that cannot be read."""
    return Invalid(
        f"{shown} cannot be read ({error.strerror}); make it readable or leave it out with a line in .isthmusignore"
    )


def state_of(info: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file changes."""
    return info.st_size, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


class HashCache:
    """Digests kept from one run to the next, for one folder. Losing it costs time, never correctness."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._old = self._read()
        self._new: dict[str, list[object]] = {}
        self._changed = False

    @classmethod
    def for_folder(cls, root: str, cache_home: Path) -> HashCache:
        """The cache of a folder, below the user's cache folder."""
        return cls(cache_home / "isthmus" / "hashes" / f"{hashlib.sha256(root.encode()).hexdigest()[:32]}.json")

    def get(self, path: str, info: os.stat_result) -> str | None:
        """The digest, if the file is as it was."""
        found = self._old.get(path)
        if found and found[:4] == list(state_of(info)):
            self._new[path] = found
            return str(found[4])
        return None

    def put(self, path: str, info: os.stat_result, digest: str) -> None:
        """Remember a digest, unless the file is so young that an edit could go unnoticed."""
        self._changed = True
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) > _YOUNG:
            self._new[path] = [*state_of(info), digest]

    def save(self) -> None:
        """Write it down; a cache that cannot be written is no reason to fail."""
        if not self._changed:
            return
        draft = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(self._new))
            draft.replace(self._file)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _read(self) -> dict[str, list[object]]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        usable = isinstance(found, dict) and all(isinstance(v, list) and len(v) == 5 for v in found.values())
        return found if usable else {}
