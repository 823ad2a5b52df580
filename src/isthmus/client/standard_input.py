"""Standard input as a file: read to its end, within a bound, and sent along like the files of the job's folder.

It is sent as a whole and not as it comes: so it is the same at every attempt, at every kind of site, and whether or not
somebody stays attached; and a job that reads slowly holds nobody up.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from isthmus.errors import TooLarge

MOST_BYTES = 2**30
_CHUNK = 1 << 20


@contextmanager
def as_file(content: bytes | os.PathLike[str]) -> Iterator[str]:
    """The path of a file that holds this, for as long as it is needed."""
    if not isinstance(content, bytes):
        yield os.fspath(content)
        return
    with tempfile.NamedTemporaryFile(prefix="isthmus-stdin-") as file:
        file.write(content)
        file.flush()
        yield file.name


def copy(descriptor: int, into: IO[bytes], most: int = MOST_BYTES) -> int:
    """Copy what comes until its end; answers how many bytes. Raises TooLarge beyond the bound."""
    size = 0
    while chunk := os.read(descriptor, _CHUNK):
        size += len(chunk)
        if size > most:
            raise TooLarge(
                f"standard input is longer than {most // 2**20} MiB; put it into a file of the folder that is sent "
                "along, and have the command read that"
            )
        into.write(chunk)
    into.flush()
    return size
