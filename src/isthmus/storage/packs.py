"""Packs: many contents in one tar stream, read and written without holding more than a piece of it.

A pack that is uploaded has regular files named by their digests and nothing else; what a name may not say (a
path, a link, a device) cannot be asked for. An archive that is downloaded is a plain tar of a tree. Python's own
tarfile reads and writes the headers; the bytes between them are streamed here, because tarfile wants a blocking
file and a body arrives as it likes.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import Invalid, TooLarge
from isthmus.resources.work.trees import Tree

from .base import Blobs

_BLOCK = tarfile.BLOCKSIZE
_SMALL = 256 * 2**10
_AT_ONCE = 16
_MAX_RECORDS = 64 * 2**10
_PIECE = 256 * 2**10
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7z", b"(\xb5/")
_RECORD = re.compile(rb"(\d{1,20}) ([^=]+)=")


@dataclass(slots=True)
class Stored:
    """What a pack brought."""

    count: int = 0
    bytes: int = 0


async def unpack(blobs: Blobs, namespace: str, chunks: AsyncIterator[bytes], limit: int) -> Stored:
    """Keep every content of a pack; raises Invalid. What was kept before a fault stays: it is what its digest says."""
    stored = Stored()
    reader = _Reader(chunks, limit)
    room = asyncio.Semaphore(_AT_ONCE)

    async def keep(digest: str, data: bytes) -> None:
        try:
            await blobs.put(namespace, digest, _once(data))
        finally:
            room.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            while member := await _next_member(reader):
                digest, size = member
                if size <= _SMALL:
                    # Small ones are kept side by side: most of their time is waiting for the disk.
                    data = await reader.exactly(size)
                    await room.acquire()
                    tasks.create_task(keep(digest, data))
                else:
                    async with aclosing(reader.pieces(size)) as pieces:
                        await blobs.put(namespace, digest, pieces)
                await reader.exactly(-size % _BLOCK)
                stored.count += 1
                stored.bytes += size
            await reader.drain()
    except BaseExceptionGroup as group:
        # One fault is enough: the first is reported, the others follow from it.
        raise _first(group) from None
    return stored


async def _next_member(reader: _Reader) -> tuple[str, int] | None:
    """The digest and size of the next content; None at the end of the pack."""
    records: dict[str, str] = {}
    while True:
        block = await reader.exactly(_BLOCK)
        if not any(block):
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError):
            hint = "; send it without compression" if block.startswith(_COMPRESSED) else ""
            raise Invalid(f"the body is not a tar archive at byte {reader.taken - _BLOCK}{hint}") from None
        if header.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE):
            return _checked(header, records)
        if not 0 <= header.size <= _MAX_RECORDS:
            raise Invalid("the archive has an extended header that is too large; write it in the ustar format")
        data = await reader.exactly(header.size)
        await reader.exactly(-header.size % _BLOCK)
        if header.type == tarfile.XHDTYPE:
            records = _parse_records(data)


def _checked(header: tarfile.TarInfo, records: dict[str, str]) -> tuple[str, int]:
    name = records.get("path", header.name)
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise Invalid(f"{name[:80]!r} in the archive is not a regular file; a pack has only contents")
    if not _DIGEST.fullmatch(name):
        raise Invalid(f"{name[:80]!r} in the archive is not a digest; name each file sha256: and its 64 digits")
    size = records.get("size", str(header.size))
    if not re.fullmatch(r"[0-9]{1,18}", size):
        raise Invalid(f"{name} in the archive has no proper size")
    return name, int(size)


def _parse_records(data: bytes) -> dict[str, str]:
    """The `length key=value` lines of an extended header."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data) and (match := _RECORD.match(data, at)):
        length = int(match[1])
        end = at + length
        if not match.end() - at < length <= len(data) - at or data[end - 1 : end] != b"\n":
            break
        found[match[2].decode("utf-8", "replace")] = data[match.end() : end - 1].decode("utf-8", "replace")
        at = end
    else:
        if not data[at:].strip(b"\0"):
            return found
    raise Invalid("the archive has an extended header that cannot be read; write it in the ustar format")


class _Reader:
    """A body as it comes, taken in the sizes that a tar needs."""

    def __init__(self, chunks: AsyncIterator[bytes], limit: int) -> None:
        self._chunks = chunks
        self._limit = limit
        self._seen = 0
        self._buffer = bytearray()
        self.taken = 0

    async def exactly(self, size: int) -> bytes:
        """So many bytes; raises Invalid if the body ends before."""
        while len(self._buffer) < size:
            await self._more()
        return self._take(size)

    async def pieces(self, size: int) -> AsyncGenerator[bytes, None]:
        """So many bytes, as they come."""
        while size:
            if not self._buffer:
                await self._more()
            piece = self._take(min(size, len(self._buffer)))
            size -= len(piece)
            yield piece

    async def drain(self) -> None:
        """Read to the end, so that the sender can finish; what follows the end of the archive is padding."""
        while await self._fill():
            self._buffer.clear()

    async def _more(self) -> None:
        if not await self._fill():
            raise Invalid(f"the archive ends in the middle, after {self._seen} bytes; send it again")

    async def _fill(self) -> bool:
        while (chunk := await anext(self._chunks, None)) is not None:
            self._seen += len(chunk)
            if self._seen > self._limit:
                raise TooLarge(f"the archive is larger than {self._limit} bytes; send it in several packs")
            if chunk:
                self._buffer += chunk
                return True
        return False

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self.taken += size
        return taken


async def archive(blobs: Blobs, namespace: str, tree: Tree, moment: float) -> AsyncGenerator[bytes, None]:
    """A tar of a tree, as it is sent; every file gets the time `moment`."""
    for file in tree.files:
        header = tarfile.TarInfo(file.path)
        header.mode, header.mtime = file.mode, int(moment)
        path: Path | None = None
        if file.link is not None:
            header.type, header.linkname = tarfile.SYMTYPE, file.link
        elif file.digest is not None:
            path = blobs.path(namespace, file.digest)
            header.size = path.stat().st_size
        yield header.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        if path is not None:
            async for piece in read_pieces(path):
                yield piece
            if padding := -header.size % _BLOCK:
                yield bytes(padding)
    yield bytes(2 * _BLOCK)


async def read_pieces(path: Path) -> AsyncIterator[bytes]:
    """A file in pieces, read in threads."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
