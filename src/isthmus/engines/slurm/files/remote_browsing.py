"""Looking into a folder over SFTP, as the person whose job works there. Nothing is changed, and no link is followed.

The server follows links in the middle of a path by itself, so every folder on the way is looked at first. A job that
puts a link there in the same moment shows only what its own account may read anyway.
"""

from __future__ import annotations

import stat
from typing import Any

from isthmus.engines.base import FilePart, FolderListing, WorkFile
from isthmus.engines.browsing import listing, no_such_file, work_file
from isthmus.engines.collecting import MAX_DEPTH
from isthmus.resources.work.trees import check_path


async def list_remote(sftp: Any, work: str, most: int) -> FolderListing:
    """What is in the folder, up to so many entries. Raises FileNotFoundError."""
    import asyncssh

    found: list[WorkFile] = []
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            async for entry in sftp.scandir(f"{work}/{prefix}".rstrip("/")):
                mode = entry.attrs.permissions or 0
                path = f"{prefix}{entry.filename}"
                if stat.S_ISDIR(mode):
                    if entry.filename not in (".", "..") and prefix.count("/") < MAX_DEPTH:
                        pending.append(f"{path}/")
                elif len(found) == most:
                    return listing(found, complete=False)
                else:
                    found.append(work_file(path, mode, int(entry.attrs.size or 0), float(entry.attrs.mtime or 0)))
            if len(pending) > most:
                return listing(found, complete=False)
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPPermissionDenied):
            if not prefix:
                raise
    return listing(found)


async def read_remote(sftp: Any, work: str, path: str, offset: int, size: int) -> FilePart:
    """Part of a plain file below the folder. Raises NotFound, FileNotFoundError."""
    import asyncssh

    here = work
    *folders, name = check_path(path).split("/")
    for folder in folders:
        here = f"{here}/{folder}"
        if not stat.S_ISDIR((await sftp.lstat(here)).permissions or 0):
            raise no_such_file(path)
    found = await sftp.lstat(f"{here}/{name}")
    if not stat.S_ISREG(found.permissions or 0):
        raise no_such_file(path)
    try:
        async with sftp.open(f"{here}/{name}", "rb") as file:
            return FilePart(await file.read(size, offset), int(found.size or 0))
    except asyncssh.SFTPPermissionDenied:
        raise no_such_file(path) from None
