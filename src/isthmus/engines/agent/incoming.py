"""Files on their way from an agent, kept so that a broken transfer goes on where it stopped.

The agent sends records, each a length and a document, with the bytes of a file behind the document that names it
and the file's digest behind them:

```
{"path": "out/a.csv", "mode": 420, "size": 10, "offset": 0}  0123456789  {"digest": "sha256:…"}
{"path": "out/link", "link": "a.csv"}
{"skipped": ["…"]}
```

What has arrived lies in a folder of the run until everything has. The control plane says at the beginning how much
it has of each file. A file counts when its digest is right; one whose is not is thrown away, and asked for again
the next time. Paths and links are checked here, whatever the agent has checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.engines.base import FileSink
from isthmus.engines.collecting import remove_tree
from isthmus.errors import SiteUnavailable, TooLarge
from isthmus.resources.work.trees import check_link, check_path

from .frames import ProtocolViolation, document
from .linking import AgentCall, encode_body
from .messages import LONGEST_MESSAGE, text, whole

LENGTH = struct.Struct(">I")
LONGEST_RECORD = 2**20
MOST_FILES = 200_000
MOST_SENTENCES = 1000
_LARGEST_FILE = 2**62
_KEPT_FREE = 256 * 2**20
"""Bytes of the disk that files of agents never take."""


def encode_record(value: dict[str, Any]) -> bytes:
    """A record, as it is sent."""
    body = encode_body(value)
    return LENGTH.pack(len(body)) + body


class _RecordReader:
    """Exactly as many bytes as wanted, from pieces of any length."""

    def __init__(self, pieces: Callable[[], Any]) -> None:
        self._pieces = pieces
        self._rest = b""

    async def upto(self, size: int) -> bytes:
        """Some bytes, at most so many; raises SiteUnavailable at the end."""
        if not self._rest:
            self._rest = await self._pieces()
            if not self._rest:
                raise SiteUnavailable("The agent stopped in the middle of a file. It is asked again later.")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    async def exactly(self, size: int) -> bytes:
        """So many bytes."""
        parts = []
        while size:
            parts.append(await self.upto(size))
            size -= len(parts[-1])
        return b"".join(parts)

    async def record(self) -> dict[str, Any]:
        """The next record."""
        (size,) = LENGTH.unpack(await self.exactly(LENGTH.size))
        if size > LONGEST_RECORD:
            raise ProtocolViolation(f"a record of {size} bytes")
        return document(await self.exactly(size))


class IncomingFiles:
    """The files of one run."""

    def __init__(self, folder: Path, run_id: str, limit: int) -> None:
        """The id must have been checked."""
        self._folder, self._limit = folder / "incoming" / run_id, limit

    def have(self) -> dict[str, int]:
        """How much there is of each file, by the mark of its path. For a thread."""
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name: entry.stat(follow_symlinks=False).st_size for entry in entries}
        except FileNotFoundError:
            return {}

    def remove(self) -> None:
        """Everything is where it belongs, or not wanted any more. For a thread."""
        remove_tree(self._folder)

    async def receive(self, call: AgentCall, sink: FileSink, seconds: float) -> list[str]:
        """Take everything in; a sentence for each file that was not kept. Raises SiteUnavailable."""

        async def pieces() -> bytes:
            async with asyncio.timeout(seconds):
                return await call.receive()

        reader, skipped, left = _RecordReader(pieces), list[str](), self._limit
        for _ in range(MOST_FILES):
            head = await reader.record()
            if "skipped" in head:
                said = head["skipped"] if isinstance(head["skipped"], list) else []
                return skipped + [text(one, LONGEST_MESSAGE) for one in said[:MOST_SENTENCES]]
            path = _path(head)
            if "link" in head:
                target = text(head["link"], 4096)
                try:
                    check_link(path, target)
                except ValueError:
                    skipped.append(f"{path} was not kept: it is a link to a place outside the job's folder.")
                    continue
                await sink.add_link(path, target)
                continue
            size = whole(head.get("size"), _LARGEST_FILE)
            if size > left:
                raise SiteUnavailable(f"The agent sends more than {self._limit} bytes of outputs, which is not taken.")
            left -= size
            try:
                await self._take(reader, path, size, whole(head.get("offset"), size), head, sink)
            except TooLarge as error:  # the tenant's storage quota: what is smaller may still fit
                skipped.append(f"{path} was not kept: {error.message}.")
        raise SiteUnavailable(f"The agent sends more than {MOST_FILES} files, which are not taken.")

    async def _take(
        self, reader: _RecordReader, path: str, size: int, offset: int, head: dict[str, Any], sink: FileSink
    ) -> None:
        file = self._folder / mark_of_path(path)
        descriptor = await asyncio.to_thread(self._open, file, offset, size)
        try:
            hasher = await asyncio.to_thread(_hash, descriptor, offset)
            at = offset
            while at < size:
                piece = await reader.upto(size - at)
                hasher.update(piece)
                _write(descriptor, piece, at)  # here: a thread would go on after a cancellation, when it is closed
                at += len(piece)
            if (await reader.record()).get("digest") != f"sha256:{hasher.hexdigest()}":
                file.unlink(missing_ok=True)
                raise SiteUnavailable(f"{path} did not arrive as it was sent; it is asked for again later.")
            os.lseek(descriptor, 0, os.SEEK_SET)
            await sink.add(path, descriptor, whole(head.get("mode"), 0o777))
        finally:
            os.close(descriptor)

    def _open(self, file: Path, offset: int, size: int) -> int:
        try:
            self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            if shutil.disk_usage(self._folder).free < size - offset + _KEPT_FREE:
                raise SiteUnavailable("The disk of the control plane has no room for the outputs of the run.")
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if os.fstat(descriptor).st_size < offset:
                os.close(descriptor)
                raise ProtocolViolation("a file that goes on where it was never sent to")
            os.ftruncate(descriptor, offset)
            return descriptor
        except OSError as error:
            raise SiteUnavailable(f"The outputs of the run cannot be kept: {error}.") from error


def mark_of_path(path: str) -> str:
    """The name under which a file of any path lies while it is on its way."""
    return hashlib.sha256(path.encode()).hexdigest()


def _path(head: dict[str, Any]) -> str:
    path = head.get("path")
    try:
        checked = check_path(path if isinstance(path, str) else "")
        checked.encode()  # JSON can name what is not UTF-8
        return checked
    except ValueError:
        raise ProtocolViolation("a file whose path leads elsewhere") from None


def _hash(descriptor: int, size: int) -> Any:
    hasher, at = hashlib.sha256(), 0
    while at < size:
        piece = os.pread(descriptor, min(2**20, size - at), at)
        if not piece:
            break
        hasher.update(piece)
        at += len(piece)
    return hasher


def _write(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
