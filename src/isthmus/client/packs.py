"""Many contents as one tar stream, made while it is sent; and tar streams unpacked without trusting them.

A pack's members are named by digest. Each file is compared with the state it was hashed in, so that a file that
was edited meanwhile is an error that names it and never a wrong content.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from isthmus._kit.links import escaping
from isthmus.errors import Invalid

from .folders import Content, Progress
from .hashes import state_of, unreadable
from .requests import Body

_CHUNK = 1 << 18
_BLOCK = 512


def pack_body(contents: Mapping[str, Content], digests: Sequence[str], progress: Progress | None = None) -> Body:
    """The contents under these digests as a body of known length."""
    sizes = {digest: contents[digest].info.st_size for digest in digests}
    length = sum(_BLOCK + _padded(size) for size in sizes.values()) + 2 * _BLOCK
    total = sum(sizes.values())

    def chunks() -> Iterator[bytes]:
        done = 0
        for digest in digests:
            yield _header(digest, sizes[digest])
            for chunk in _content(contents[digest]):
                yield chunk
                done += len(chunk)
                if progress:
                    progress(done, total)
            yield bytes(_padded(sizes[digest]) - sizes[digest])
        yield bytes(2 * _BLOCK)

    return Body(length, chunks)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    # GNU format writes sizes above 8 GiB within the one block that the length counts on.
    return member.tobuf(tarfile.GNU_FORMAT)


def _content(content: Content) -> Iterator[bytes]:
    name = Path(content.source).name
    changed = Invalid(f"{content.source} changed while it was being sent; send it again when nothing writes to it")
    try:
        descriptor = os.open(content.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise changed from None
    except OSError as error:
        raise unreadable(name, error) from None
    try:
        if state_of(os.fstat(descriptor)) != state_of(content.info):
            raise changed
        left = content.info.st_size
        while left:
            chunk = os.read(descriptor, min(_CHUNK, left))
            if not chunk:
                raise changed
            left -= len(chunk)
            yield chunk
        if state_of(os.fstat(descriptor)) != state_of(content.info):
            raise changed
    finally:
        os.close(descriptor)


def unpack(stream: IO[bytes], target: Path, below: str = "") -> list[str]:
    """Put the files of a tar stream into a folder and answer their paths; never writes outside the folder.

    `below` is put before every path, such as `3/` for the third element of an array.

    Each file is written beside its place and renamed into it, so that a link that stands there is replaced and
    not followed. Links come last, when nothing can be written through them any more.
    """
    target.mkdir(parents=True, exist_ok=True)
    root = target.resolve()
    written: list[str] = []
    links: list[tuple[Path, str, str]] = []
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.isdir():
                    continue
                place = _place(root, below + member.name)
                if member.issym():
                    links.append((place, member.linkname, below + member.name))
                elif member.isreg():
                    source = archive.extractfile(member)
                    assert source is not None
                    _write(source, place, member.mode & 0o777)
                    written.append(below + member.name)
                else:
                    raise Invalid(f"the archive holds {member.name!r}, which is neither a file nor a link")
    except (tarfile.TarError, EOFError) as error:
        raise Invalid(f"the archive of outputs is damaged ({error}); download again") from None
    if out := escaping({name: to for _, to, name in links}):
        raise Invalid(f"the archive holds links that lead outside the folder, such as {min(out)!r}; none was made")
    for place, to, name in links:
        _link(root, place, to)
        written.append(name)
    for place, _, _ in links:  # links that were there before may lead on
        if not Path(os.path.realpath(place)).is_relative_to(root):
            place.unlink()
            raise Invalid(f"the link {place} would lead outside the folder through another one; it was not made")
    return written


def _place(root: Path, name: str) -> Path:
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise Invalid(f"the archive holds {name!r}, which is not a path inside a folder; nothing outside is written")
    parent = root
    for part in parts[:-1]:
        parent /= part
        if parent.is_symlink():
            raise Invalid(f"{parent} is a link and may lead out of {root}; move it away and download again")
        parent.mkdir(exist_ok=True)
    return parent / parts[-1]


def _write(source: IO[bytes], place: Path, mode: int) -> None:
    descriptor, draft = tempfile.mkstemp(prefix=".isthmus-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
            os.fchmod(file.fileno(), mode | 0o600)
        Path(draft).replace(place)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _link(root: Path, place: Path, to: str) -> None:
    end = Path(os.path.normpath(place.parent / to))
    if to.startswith("/") or (end != root and root not in end.parents):
        raise Invalid(f"the archive holds a link {place.name!r} to {to!r}, outside the folder; it was not made")
    if place.is_dir() and not place.is_symlink():
        raise Invalid(f"there is a folder where the archive has a link, {place}; move it away and download again")
    place.unlink(missing_ok=True)
    place.symlink_to(to)
