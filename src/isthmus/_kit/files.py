"""Opening files that somebody else may have put there: what is not a plain file is refused, and nothing blocks.

A folder, a pipe, a device or a link where a file is expected, or a file of any length: whoever can write in a folder
can leave them there. A pipe that nobody writes to would hold up its reader for ever, a link lead it elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

PIECE = 2**20
_NOT_PLAIN = frozenset({errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV})


class NotRegular(OSError):
    """There is something, but no plain file."""


def open_regular(path: Path | str) -> int:
    """A descriptor to read a plain file with; raises NotRegular for anything else, and OSError as `os.open` does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise NotRegular(error.errno, "this is not a plain file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(errno.EINVAL, "this is not a plain file", str(path))
    return fd


def read_regular(path: Path | str, most: int) -> bytes:
    """The first bytes of a plain file, at most so many; raises as `open_regular` does."""
    fd = open_regular(path)
    try:
        parts, left = list[bytes](), most
        while left > 0 and (part := os.read(fd, min(left, PIECE))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)
