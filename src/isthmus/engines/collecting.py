"""Bringing files back from a folder that an untrusted job has filled, and removing such a folder.

The folder may hold anything: links to `/etc/shadow`, pipes, devices, files without end, folders a thousand deep. So
it is walked by descriptors, step by step and without ever following a link; a file is kept only if it is a plain
file of the job's own account; and what is handed on is the very file that was looked at, by its descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus._kit.crashpoints import step
from isthmus._kit.quantities import format_bytes
from isthmus.errors import TooLarge
from isthmus.resources.work.trees import check_link

from .base import FileSink
from .patterns import OutputPattern

MAX_DEPTH = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Match:
    """Something a pattern matched: a file, a link (with its target), or something not to be kept (with the reason)."""

    path: str
    link: str | None = None
    skipped: str | None = None


def matching(paths: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Those of some paths that a pattern matches. Work for a thread: a job may leave very many."""
    compiled = [OutputPattern(pattern) for pattern in patterns]
    return [path for path in paths if any(pattern.matches(path) for pattern in compiled)]


def find_matches(work: Path, patterns: Sequence[str], owner: int) -> list[Match]:
    """Everything in the folder that a pattern matches, in order."""
    compiled = [OutputPattern(pattern) for pattern in patterns]
    if not compiled:
        return []
    top = _open_top(work)
    try:
        found = [
            _classify(path, info, target, owner)
            for path, info, target in _walk(top, "", 0)
            if any(pattern.matches(path) or (info is None and pattern.leads_below(path)) for pattern in compiled)
        ]
    finally:
        os.close(top)
    return sorted((match for match in found if match is not None), key=lambda match: match.path)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, os.stat_result | None, str | None]]:
    """Every entry below; the stat result is None for a folder whose inside is not seen: it is too deep, or closed."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        path = f"{prefix}{name}"
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(info.st_mode) else None
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(info.st_mode):
            yield path, info, target
        elif depth >= MAX_DEPTH:
            yield path, None, None
        else:
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:
                yield path, None, None
                continue
            try:
                yield from _walk(inner, f"{path}/", depth + 1)
            finally:
                os.close(inner)


def _classify(path: str, info: os.stat_result | None, target: str | None, owner: int) -> Match | None:
    shown = _shown(path)
    if info is None:
        return Match(path, skipped=f"{shown} was not kept: the folder cannot be read, or lies too deep.")
    if shown != path:
        return Match(path, skipped=f"{shown} was not kept: its name is not UTF-8.")
    if target is not None:
        try:
            check_link(path, target)
        except ValueError:
            return Match(path, skipped=f"{shown} was not kept: it is a link to a place outside the job's folder.")
        return Match(path, link=target)
    if not stat.S_ISREG(info.st_mode):
        return Match(path, skipped=f"{shown} was not kept: it is not a plain file.")
    if info.st_uid != owner:
        return Match(path, skipped=f"{shown} was not kept: it belongs to another account.")
    return Match(path)


def _shown(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _open_top(path: Path) -> int:
    """Open the folder itself. Where jobs run under our own account, one may have closed it to us."""
    try:
        return os.open(path, _FOLDER)
    except PermissionError:
        step(path.chmod, 0o700)
        return os.open(path, _FOLDER)


async def collect(work: Path, owner: int, patterns: Sequence[str], sink: FileSink, limit: int) -> list[str]:
    """Keep what matches, up to so many bytes; a sentence for each match that was not kept. Raises OSError."""
    skipped: list[str] = []
    left = limit
    for match in await asyncio.to_thread(find_matches, work, patterns, owner):
        if match.skipped is not None:
            skipped.append(match.skipped)
        elif match.link is not None:
            await sink.add_link(match.path, match.link)
        else:
            try:
                fd, info = open_plain(work, match.path, owner)
            except OSError as error:
                skipped.append(f"{match.path} was not kept: {error.strerror}.")
                continue
            try:
                if info.st_size > left:
                    skipped.append(
                        f"{match.path} was not kept: with it the run's outputs exceed {format_bytes(limit)}B."
                    )
                    continue
                # By descriptor: the file that was looked at, whatever its name stands for by now.
                await sink.add(match.path, fd, info.st_mode & 0o777)
                left -= info.st_size
            except TooLarge as error:  # the tenant's storage quota: what is smaller may still fit
                skipped.append(f"{match.path} was not kept: {error.message}.")
            finally:
                os.close(fd)
    return skipped


def open_plain(work: Path, path: str, owner: int) -> tuple[int, os.stat_result]:
    """Open a plain file below the folder without following any link on the way; raises OSError."""
    *folders, name = path.split("/")
    here = os.open(work, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        fd = os.open(name, _FILE, dir_fd=here)
    finally:
        os.close(here)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
        os.close(fd)
        raise OSError(errno.EACCES, "it is no longer a plain file of the job's own")
    return fd, info


def remove_tree(path: Path) -> None:
    """Remove a folder and everything in it, however deep, following no link. One that is not there is no error."""
    try:
        top = _open_top(path)
    except FileNotFoundError:
        return
    try:
        _Remover(top).clear(top, 0)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        step(path.rmdir)


class _Remover:
    """Folders that lie deep are first moved to the top, so that neither descriptors nor the stack run out."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._moved = 0

    def clear(self, folder: int, depth: int) -> None:
        while names := os.listdir(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._remove(folder, name, depth)

    def _remove(self, folder: int, name: str, depth: int) -> None:
        try:
            step(os.unlink, name, dir_fd=folder)
            return
        except IsADirectoryError:
            pass
        except PermissionError:
            step(os.chmod, folder, 0o700)
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                step(os.unlink, name, dir_fd=folder)
                return
        if depth >= 30:
            self._moved += 1
            step(os.rename, name, f".deep-{self._moved}-{os.getpid()}", src_dir_fd=folder, dst_dir_fd=self._top)
            return
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            step(os.chmod, name, 0o700, dir_fd=folder)
            inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            self.clear(inner, depth + 1)
        finally:
            os.close(inner)
        step(os.rmdir, name, dir_fd=folder)
