"""Reading tar archives that somebody else wrote: every length is bounded before anything is read.

The standard library's `tarfile` reads whatever a header claims into memory, follows what it finds and guesses where an
archive is broken. Here a header is right or the archive is refused: checksums, numbers and names are checked, extended
headers have a limit, and sparse files, which claim any size for nothing, are refused. Nothing is written here.

ustar, GNU long names and PAX are read: what Docker, Podman, Buildah, BuildKit, Kaniko, Bazel and tar write. Standard
library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

BLOCK = 512
MOST_EXTENDED = 2**20
"""Bytes of the extended header of one file."""
MOST_NAME = 4096
"""Bytes of a name, and of the target of a link."""
_ZEROS = bytes(BLOCK)
_OCTAL = re.compile(rb"[0-7]*")
_LATEST = 2**40
_READ, _SPARSE = (b"path", b"linkpath", b"size", b"mtime"), b"GNU.sparse."
"""What is read of extended headers."""

FILE, HARD_LINK, LINK, FOLDER, SPECIAL = "file", "hard link", "link", "folder", "special"
_KINDS = {
    b"0": FILE,
    b"\0": FILE,
    b"7": FILE,
    b"1": HARD_LINK,
    b"2": LINK,
    b"3": SPECIAL,
    b"4": SPECIAL,
    b"5": FOLDER,
    b"6": SPECIAL,
}


class BadArchive(ValueError):
    """The archive is not one, or not one that is read; the message says why."""


class ByteStream(Protocol):
    """Where an archive is read from."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, or fewer at the end."""
        ...

    def skip(self, size: int, /) -> int:
        """Pass over so many bytes, or fewer at the end: how many."""
        ...


class TarEntry(NamedTuple):
    """One member of an archive."""

    kind: str
    name: str
    size: int
    """Bytes of content; only a file has any."""
    mode: int
    mtime: float
    target: str


class TarReader:
    """Goes through an archive, once, from its beginning."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._left = 0
        """Bytes of the present member's content that were not read."""
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        """The members in order. Of each, the content may be read before the next is asked for."""
        extended: dict[str, str] = {}
        while (header := self._header()) is not None:
            kind = header[156:157]
            size = _number(header[124:136], "size")
            if kind == b"x":
                extended |= _records(self._extension(size, MOST_EXTENDED))
            elif kind in (b"L", b"K"):
                extended["path" if kind == b"L" else "linkpath"] = _text(self._extension(size, MOST_NAME + 1))
            elif kind == b"g":  # about all that follow: nobody writes more there than comments
                self._extension(size, MOST_EXTENDED)
            else:
                entry = _entry(header, kind, size, extended)
                extended = {}
                self._left, self._padding = entry.size, -entry.size % BLOCK
                yield entry

    def read(self, size: int) -> bytes:
        """So many bytes of the present file, or fewer at its end."""
        wanted = min(size, self._left)
        content = self._stream.read(wanted)
        if len(content) < wanted:
            raise BadArchive("it ends in the middle of a file")
        self._left -= wanted
        return content

    def _header(self) -> bytes | None:
        rest = self._left + self._padding
        if rest and self._stream.skip(rest) != rest:
            raise BadArchive("it ends in the middle of a file")
        self._left = self._padding = 0
        block = self._stream.read(BLOCK)
        if not block or block == _ZEROS:
            return None
        if len(block) < BLOCK:
            raise BadArchive("it ends in the middle of a header")
        if _number(block[148:156], "checksum") != sum(block) - sum(block[148:156]) + 8 * 0x20:
            raise BadArchive("the checksum of a header is wrong; it is no tar archive, or it is damaged")
        return block

    def _extension(self, size: int, most: int) -> bytes:
        if size > most:
            raise BadArchive(f"a header says {size} bytes about one file; {most} are read")
        content = self._stream.read(size)
        if len(content) < size or self._stream.skip(-size % BLOCK) != -size % BLOCK:
            raise BadArchive("it ends in the middle of a header")
        return content


def _entry(header: bytes, kind: bytes, size: int, extended: dict[str, str]) -> TarEntry:
    if kind == b"S" or "sparse" in extended:
        raise BadArchive("it has a sparse file; write it without (tar without --sparse)")
    if kind not in _KINDS:
        raise BadArchive(f"it has a member of the unknown type {kind!r}")
    name = _text(header[:100])
    if header[257:263] == b"ustar\0" and (prefix := _text(header[345:500])):
        name = f"{prefix}/{name}"
    name = extended.get("path", name)
    target = extended.get("linkpath", _text(header[157:257]))
    found = FOLDER if _KINDS[kind] == FILE and name.endswith("/") else _KINDS[kind]
    size = _decimal(extended["size"], "size") if "size" in extended else size
    for text in (name, target):
        if len(text) > MOST_NAME or "\0" in text:
            raise BadArchive(f"a name has more than {MOST_NAME} characters, or a NUL character")
    return TarEntry(found, name, size if found == FILE else 0, _mode(header), _time(header, extended), target)


def _mode(header: bytes) -> int:
    return _number(header[100:108], "mode") & 0o7777


def _time(header: bytes, extended: dict[str, str]) -> float:
    """When it was changed; what makes no sense is read as the beginning of time, as it harms nobody."""
    try:
        found = float(extended["mtime"]) if "mtime" in extended else float(_number(header[136:148], "time"))
    except (BadArchive, ValueError, OverflowError):
        return 0.0
    return found if 0 <= found < _LATEST else 0.0


def _number(field: bytes, what: str) -> int:
    """Octal digits; or, with the first bit set, the number itself."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise BadArchive(f"the {what} in a header is negative, or too large")
        number = int.from_bytes(field[1:], "big")
    else:
        digits = field.strip(b" \0")
        if not _OCTAL.fullmatch(digits):
            raise BadArchive(f"the {what} in a header is not a number; it is no tar archive, or it is damaged")
        number = int(digits or b"0", 8)
    if number >= 2**62:
        raise BadArchive(f"the {what} in a header is too large")
    return number


def _decimal(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadArchive(f"the {what} in a header is not a number")
    return int(text)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _records(content: bytes) -> dict[str, str]:
    """PAX: `LENGTH KEY=VALUE` and a line break, again and again; the length counts all of it."""
    found: dict[str, str] = {}
    at = 0
    while at < len(content):
        space = content.find(b" ", at, at + 8)
        digits = content[at:space] if space > 0 else b""
        end = at + int(digits) if digits.isdigit() else 0
        if end <= space + 1 or end > len(content) or content[end - 1 : end] != b"\n":
            raise BadArchive("an extended header is damaged")
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not equals:
            raise BadArchive("an extended header is damaged")
        if key.startswith(_SPARSE):
            found["sparse"] = ""
        elif key in _READ:  # of a member that never comes, others could be named without end
            found[key.decode()] = value.decode("utf-8", "surrogateescape")
        at = end
    return found
