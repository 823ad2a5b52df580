"""Files sent along with jobs, by their digests: what is there need not be sent again.

A content that is on its way lies under `<digest>.part`, and goes on where it stopped after a broken connection. It
gets its name when its digest is right. Beyond a limit, those that were not used for longest go.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.resources.work.trees import TreeFile


class Pieces(Protocol):
    """What a content arrives in."""

    async def receive(self) -> bytes:
        """The next piece; empty at the end."""
        ...


class ContentStore:
    """The contents in one folder."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._used: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}
        self._writing: Counter[str] = Counter()

    def path(self, digest: str) -> Path:
        """Where a content lies; its digest must have been checked."""
        return self._folder / digest.removeprefix("sha256:")

    def missing(self, files: Iterable[TreeFile]) -> dict[str, int]:
        """Digests of those that are not here, with how many bytes there are of each. For a thread."""
        found: dict[str, int] = {}
        for file in files:
            if file.digest is None or file.digest in found:
                continue
            path = self.path(file.digest)
            if path.exists():
                with contextlib.suppress(OSError):
                    os.utime(path)
            else:
                found[file.digest] = _size(_part(path))
        return found

    @contextlib.contextmanager
    def using(self, files: Sequence[TreeFile]) -> Iterator[None]:
        """Keep these for the time of the block."""
        digests = [file.digest for file in files if file.digest]
        self._used.update(digests)
        try:
            yield
        finally:
            self._used.subtract(digests)

    async def put(self, digest: str, size: int, offset: int, pieces: Pieces) -> None:
        """Take one in; raises SiteUnavailable, EngineRefused if it is not what it is said to be."""
        async with self._writing_of(digest):
            path = self.path(digest)
            part = _part(path)
            if path.exists():
                while await pieces.receive():
                    pass
                return
            try:
                have = await asyncio.to_thread(_size, part)
                if offset == 0 and have:
                    part.unlink()
                elif have != offset:
                    raise SiteUnavailable(f"A file goes on at byte {offset}, and {have} are here. It is sent again.")
                await self._append(part, size, offset, pieces)
                if await asyncio.to_thread(_digest, part) != digest:
                    part.unlink(missing_ok=True)
                    raise SiteUnavailable(f"The content {digest} did not arrive as it was sent. It is sent again.")
                await asyncio.to_thread(_into_place, part, path)
            except OSError as error:
                raise SiteUnavailable(f"Files cannot be kept on this machine: {error}.") from error

    async def _append(self, part: Path, size: int, offset: int, pieces: Pieces) -> None:
        with part.open("ab") as file:
            at = offset
            while piece := await pieces.receive():
                at += len(piece)
                if at > size:
                    raise EngineRefused(f"A file has more than the {size} bytes that it is said to have.")
                file.write(piece)  # here, not in a thread, which would go on after a cancellation

    def prune(self) -> None:
        """Remove what was not used for longest, beyond the limit. For a thread."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    found.append((info.st_mtime, info.st_size, entry.name))
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= self._limit:
                return
            digest = f"sha256:{name.removesuffix('.part')}"
            if self._used[digest] > 0 or digest in self._writing:
                continue
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
                total -= size

    @contextlib.asynccontextmanager
    async def _writing_of(self, digest: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(digest, asyncio.Lock())
        self._writing[digest] += 1
        try:
            async with lock:
                yield
        finally:
            self._writing[digest] -= 1
            if not self._writing[digest]:
                del self._writing[digest], self._locks[digest]


class KeptSource:
    """The folder sent along with a run, from contents that are here."""

    def __init__(self, store: ContentStore, files: Sequence[TreeFile]) -> None:
        self._store, self.files = store, files

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies."""
        assert file.digest is not None
        return self._store.path(file.digest)


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _into_place(part: Path, path: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(path)
