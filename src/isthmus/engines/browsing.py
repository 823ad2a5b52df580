"""Looking into the folder of a run while it works there, changing nothing.

The folder belongs to an untrusted job that may change it at any moment: it is walked by descriptors, no link is ever
followed, nothing but plain files of the job's own account is opened, and the work is bounded by how much is shown.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from isthmus.errors import EngineRefused, NotFound
from isthmus.resources.work.trees import check_path

from .base import FileKind, FilePart, FolderListing, WorkFile
from .collecting import MAX_DEPTH, open_plain

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENXIO, errno.ENAMETOOLONG})


def list_folder(work: Path, most: int) -> FolderListing:
    """What is in the folder, up to so many entries. Raises NotFound, EngineRefused, OSError."""
    try:
        top = os.open(work, _FOLDER)
    except FileNotFoundError:
        raise folder_gone() from None
    except PermissionError:
        raise EngineRefused("The job has closed its folder to everybody else.") from None
    try:
        found: list[WorkFile] = []
        for file in _walk(top, "", 0):
            if len(found) == most:
                return listing(found, complete=False)
            found.append(file)
        return listing(found)
    finally:
        os.close(top)


def listing(files: list[WorkFile], *, complete: bool = True) -> FolderListing:
    """In the order of their paths."""
    return FolderListing(tuple(sorted(files)), complete)


def _walk(folder: int, prefix: str, depth: int) -> Iterator[WorkFile]:
    # Read as it is asked for, and not as a whole: a folder may hold millions of names.
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            try:
                info = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    yield work_file(path, info.st_mode, info.st_size, info.st_mtime)
                    continue
                if depth >= MAX_DEPTH:
                    continue
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
            except OSError:  # gone meanwhile, or closed to us
                continue
            try:
                yield from _walk(inner, f"{path}/", depth + 1)
            finally:
                os.close(inner)


def work_file(path: str, mode: int, size: int, modified: float) -> WorkFile:
    """An entry, as it is shown: a name that is not UTF-8 is shown with marks in it, and cannot be read."""
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    kind = FileKind.FILE if stat.S_ISREG(mode) else FileKind.LINK if stat.S_ISLNK(mode) else FileKind.OTHER
    return WorkFile(shown, kind, size if kind is FileKind.FILE else 0, modified)


def read_part(work: Path, path: str, owner: int, offset: int, size: int) -> FilePart:
    """Part of a plain file of the job's own. Raises NotFound, OSError."""
    check_path(path)
    try:
        descriptor, info = open_plain(work, path, owner)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            raise no_such_file(path) from None
        raise
    try:
        return FilePart(os.pread(descriptor, size, offset), info.st_size, f"{info.st_dev}:{info.st_ino}")
    finally:
        os.close(descriptor)


def no_such_file(path: str) -> NotFound:
    """What is said of anything that is no plain file below the folder."""
    return NotFound(f"the job has no file {path[:200]!r} that can be read: it is not there, or is no plain file")


def folder_gone() -> NotFound:
    """What is said of a run whose folder is not there, or not there yet."""
    return NotFound("the folder of the job is not there")
