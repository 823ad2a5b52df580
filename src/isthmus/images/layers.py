"""From a stack of layers to one folder, the root file system of an image. Standard library only.

Layers are applied from the lowest to the uppermost: what a layer has replaces what was there, `.wh.NAME` removes NAME,
and `.wh..wh..opq` removes all that lower layers put into its folder.

Whoever made the image may want to harm whoever unpacks it. So nothing is ever opened that was there before; every
name is resolved by us, inside the root, as if the root were `/`: `..`, absolute names and links lead to its top at the
most. Device files and pipes are left out. Owners, extended attributes, set-uid, set-gid and sticky bits are dropped,
and so is the right of others to write; everybody may read, since what is in an image is no secret to those who run it.
Bytes, files, depth and lengths have limits, also of what is unpacked only to be removed again.

The folder must be one that nobody else writes to meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from .tar_streams import BLOCK, FILE, FOLDER, HARD_LINK, LINK, MOST_NAME, BadArchive, TarEntry, TarReader
from .zstd_streams import PROGRAM, ZstdStream

_PIECE = 1 << 18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_MOST_LINKS = 40
"""Links on the way to one file; as Linux counts them."""


_MOST_FOLDERS = 10_000
"""Folders of which it is kept where they are."""


class BadLayer(ValueError):
    """A layer that is not unpacked; the message says why."""


class TooManyBytes(BadLayer):
    """A layer with which the image becomes larger than it may be."""


@dataclass(frozen=True)
class Limits:
    """How much one image may be."""

    bytes: int = 64 * 2**30
    """Of all files of all layers. Default 64 GiB: more than the largest images for machine learning."""
    files: int = 2_000_000
    """Files, folders and links of all layers. Default two million: no ordinary image has a tenth of that."""
    depth: int = 100
    """Folders below each other. Default 100: file systems can do more, programs often cannot."""


class LayerStream:
    """What a layer holds when decompressed, piece by piece; both forms are hashed on the way."""

    def __init__(self, file: BinaryIO, size: int, most: int) -> None:
        self._file, self._size, self._left = file, size, most
        self._compressed, self._plain = hashlib.sha256(), hashlib.sha256()
        self._buffer, self._at = b"", 0
        self._input = self._raw()
        self._gzip = zlib.decompressobj(wbits=31) if self._input.startswith(_GZIP) else None
        self._zstd = self._through_zstd() if self._input.startswith(_ZSTD) else None

    def _through_zstd(self) -> ZstdStream:
        first = [self._input]
        try:
            return ZstdStream(lambda: first.pop() if first else self._raw())
        except FileNotFoundError:
            raise BadLayer(f"it is compressed by zstd. Install the program {PROGRAM} at this site") from None

    def close(self) -> None:
        """Let go of what reads it."""
        if self._zstd is not None:
            self._zstd.close()

    def read(self, size: int) -> bytes:
        """So many bytes, or fewer at the end."""
        if len(self._buffer) - self._at >= size:
            self._at += size
            return self._buffer[self._at - size : self._at]
        parts = [self._buffer[self._at :]]
        missing = size - len(parts[0])
        self._buffer, self._at = b"", 0
        while missing and (piece := self._piece()):
            parts.append(piece[:missing])
            if len(piece) > missing:
                self._buffer, self._at = piece, missing
            missing -= len(parts[-1])
        return b"".join(parts)

    def skip(self, size: int) -> int:
        """Pass over so many bytes."""
        left = size
        while left and (piece := self.read(min(left, _PIECE))):
            left -= len(piece)
        return size - left

    def digests(self) -> tuple[str, str]:
        """Of the layer as it is kept, and as it is inside: everything is read to the end first."""
        while self.read(_PIECE):
            pass
        return f"sha256:{self._compressed.hexdigest()}", f"sha256:{self._plain.hexdigest()}"

    def _raw(self) -> bytes:
        piece = self._file.read(min(_PIECE, self._size))
        self._size -= len(piece) or self._size  # a file that is shorter than was said ends here
        self._compressed.update(piece)
        return piece

    def _piece(self) -> bytes:
        if self._gzip is not None:
            piece = self._inflated(self._gzip)
        elif self._zstd is not None:
            try:
                piece = self._zstd.read()
            except ValueError as error:
                raise BadLayer(str(error)) from error
        else:
            piece, self._input = self._input or self._raw(), b""
        self._plain.update(piece)
        self._left -= len(piece)
        if self._left < 0:
            raise TooManyBytes("it is larger than images may be")
        return piece

    def _inflated(self, gzip: zlib._Decompress) -> bytes:
        while True:
            self._input = self._input or self._raw()
            if gzip.eof:  # several may follow each other; and zeros, which tapes are filled up with
                self._input = self._input.lstrip(b"\0")
                if self._input:
                    gzip = self._gzip = zlib.decompressobj(wbits=31)
                elif not self._size:
                    return b""
                continue
            ended = not self._input
            try:
                piece = gzip.decompress(self._input, _PIECE)
            except zlib.error as error:
                raise BadLayer(f"its compressed content is damaged ({error})") from error
            self._input = gzip.unused_data or gzip.unconsumed_tail
            if piece:
                return piece
            if ended:
                raise BadLayer("it ends before its compressed content does")


class RootFolder:
    """The root file system while it is made. `top` is an empty folder."""

    def __init__(self, top: str, limits: Limits | None = None) -> None:
        self._top = top
        self._limits = limits or Limits()
        self._folders: dict[str, str] = {}
        """Folders as named by layers, and where they truly are below the top."""
        self._fresh: set[int] = set()
        """What the present layer made: hashes of paths, since a million long ones would fill the memory. Some may be
        gone again, which harms nothing."""
        self._emptied: set[str] = set()
        """Folders of which the present layer removed what lower ones had put there."""
        self.files = 0
        self.bytes = 0
        self.dropped = 0
        """Device files and pipes that were left out."""

    def apply(self, file: BinaryIO, size: int) -> tuple[str, str]:
        """Unpack one layer on top of what is there: its digests, as kept and inside. Raises BadLayer and OSError."""
        most = self._limits.bytes - self.bytes + (self._limits.files - self.files + 2) * 4 * BLOCK
        stream = LayerStream(file, size, most)
        self._fresh.clear()
        self._emptied.clear()
        try:
            reader = TarReader(stream)
            for entry in reader:
                self._add(entry, reader)
            return stream.digests()
        except BadArchive as error:
            raise BadLayer(str(error)) from error
        finally:
            stream.close()

    def has_program(self, name: str) -> bool:
        """Whether there is such a file, and it may be run."""
        try:
            found = "/".join((self._top, *self._walk(_parts(name), make=False)))
        except (FileNotFoundError, BadLayer):
            return False
        mode = os.lstat(found).st_mode
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def put_placeholder(self, folder: str, name: str) -> None:
        """See to it that there is a plain file, over which that of the machine can be mounted."""
        if not _is_folder(f"{self._top}/{folder}"):
            self._clear(f"{self._top}/{folder}")
            os.mkdir(f"{self._top}/{folder}", 0o755)
        path = f"{self._top}/{folder}/{name}"
        if not os.path.lexists(path) or not stat.S_ISREG(os.lstat(path).st_mode):
            self._clear(path)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def put_folder(self, name: str) -> None:
        """See to it that there is a folder at the place of this name, with no link on the way."""
        path = self._top
        for part in name.split("/"):
            path = f"{path}/{part}"
            if not _is_folder(path):
                self._clear(path)
                os.mkdir(path, 0o755)

    def _add(self, entry: TarEntry, reader: TarReader) -> None:
        self._count()
        parts = _parts(entry.name)
        if not parts:  # the top itself
            if entry.kind != FOLDER:
                raise BadLayer("it replaces the root folder by something else")
            return
        *above, name = parts
        if name.startswith(_WHITEOUT):
            self._white_out(above, name)
            return
        if entry.kind not in (FILE, FOLDER, LINK, HARD_LINK):
            self.dropped += 1
            return
        place = self._place(above, name)
        path = f"{self._top}/{place}"
        if entry.kind == HARD_LINK:
            source = self._linked(entry)
            if source != path:
                self._clear(path)
                os.link(source, path, follow_symlinks=False)
        elif entry.kind == LINK:
            if not entry.target:
                raise BadLayer(f"the link {_shown(entry.name)} leads to nothing")
            self._clear(path)
            os.symlink(entry.target, path)
        elif entry.kind == FOLDER:
            if not _is_folder(path):
                self._clear(path)
                os.mkdir(path, 0o755)
        else:
            self._clear(path)
            self._write(path, entry, reader)
        while place and hash(place) not in self._fresh:  # with the folders above it: they stay too
            self._fresh.add(hash(place))
            place = place.rpartition("/")[0]

    def _count(self) -> None:
        self.files += 1
        if self.files > self._limits.files:
            raise BadLayer(f"the image has more than {self._limits.files} files")

    def _write(self, path: str, entry: TarEntry, reader: TarReader) -> None:
        self.bytes += entry.size
        if self.bytes > self._limits.bytes:
            raise TooManyBytes(f"the image has more than {self._limits.bytes} bytes")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while piece := reader.read(_PIECE):
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
            os.fchmod(fd, file_mode(entry.mode))
            # Python believes a .pyc only if its source has the time that it was compiled with.
            os.utime(fd, (entry.mtime, entry.mtime))
        finally:
            os.close(fd)

    def _linked(self, entry: TarEntry) -> str:
        """The file that a hard link is another name of."""
        parts = _parts(entry.target)
        path = f"{self._top}/{self._place(parts[:-1], parts[-1])}" if parts else self._top
        if not os.path.lexists(path) or _is_folder(path):
            raise BadLayer(f"{_shown(entry.name)} is a hard link to {_shown(entry.target)}, and that is no file")
        return path

    def _white_out(self, above: list[str], name: str) -> None:
        folder = self._folder(above)
        if name == _OPAQUE:
            self._empty(folder)
            return
        hidden = name[len(_WHITEOUT) :]
        if hidden.startswith(_WHITEOUT):  # of a file system that Docker used once; nobody needs it
            return
        if hidden in ("", ".", ".."):
            raise BadLayer(f"it removes {_shown('/'.join((*above, hidden)))}, which is no name")
        self._clear(f"{self._top}/{_below(folder, hidden)}")

    def _empty(self, folder: str) -> None:
        """Remove what lower layers put into a folder; what this one did stays. Once: then nothing of theirs is left."""
        if folder in self._emptied:
            return
        self._emptied.add(folder)
        with os.scandir(f"{self._top}/{folder}") as found:
            names = [entry.name for entry in found]
        for name in names:
            place = _below(folder, name)
            if hash(place) not in self._fresh:
                self._clear(f"{self._top}/{place}")
            elif _is_folder(f"{self._top}/{place}"):
                self._empty(place)

    def _clear(self, path: str) -> None:
        """Make room for what comes."""
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISDIR(mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        if not stat.S_ISREG(mode):  # folders may have been reached through it
            self._folders.clear()

    def _place(self, above: list[str], name: str) -> str:
        place = _below(self._folder(above), name)
        if len(os.fsencode(place)) > MOST_NAME // 2 or place.count("/") >= self._limits.depth:
            raise BadLayer(f"{_shown(place)} lies too deep")
        return place

    def _folder(self, parts: list[str]) -> str:
        """Where a folder truly is, below the top; made if it is missing."""
        named = "/".join(parts)
        found = self._folders.get(named)
        if found is None:
            if len(self._folders) >= _MOST_FOLDERS:
                self._folders.clear()
            found = self._folders[named] = "/".join(self._walk(parts, make=True))
        return found

    def _make(self, place: list[str]) -> int:
        self._count()
        if len(place) > self._limits.depth:
            raise BadLayer(f"{_shown('/'.join(place))} lies too deep")
        os.mkdir("/".join((self._top, *place)), 0o755)
        return stat.S_IFDIR

    def _walk(self, parts: list[str], *, make: bool) -> list[str]:
        """Where a name leads, links followed as if the top were `/`; with `make`, to a folder, made where missing."""
        todo, at, links = parts[::-1], list[str](), 0
        while todo:
            part = todo.pop()
            if part == "..":
                del at[-1:]
                continue
            path = "/".join((self._top, *at, part))
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                if not make:
                    raise
                mode = self._make([*at, part])
            if stat.S_ISLNK(mode):
                links += 1
                target = os.readlink(path)
                if links > _MOST_LINKS:
                    raise BadLayer(f"{_shown('/'.join(parts))} leads through too many links")
                if target.startswith("/"):
                    at = []
                todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
            elif stat.S_ISDIR(mode) or (not make and not todo):
                at.append(part)
            else:
                raise BadLayer(f"{_shown('/'.join(parts))} should be a folder and is a file")
        return at


def file_mode(mode: int) -> int:
    """The rights that a file of an image gets: everybody reads it, those who could run it run it, nobody writes it."""
    return 0o755 if mode & 0o111 else 0o644


def _parts(name: str) -> list[str]:
    """A name, step by step from the top; absolute names begin there too."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadLayer(f"{_shown(name)} leads out of its folder")
    return parts


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _is_folder(path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.lstat(path).st_mode)
    return False


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 100 else f"{name[:100]}…")
