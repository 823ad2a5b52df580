"""Labs have numbers: their links, addresses and ports follow from them, so no two labs of a kind may have the same."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from isthmus.errors import Misconfigured

NUMBERS = 250
_LOCKS = Path("/run/lock")


class Numbered(Protocol):
    """A lab to be, as far as its number is concerned."""

    @property
    def bridge(self) -> str:
        """The network interface that joins its nodes."""
        ...

    def port(self, which: int) -> int:
        """One of its eight ports."""
        ...


@contextlib.contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """Two labs that are set up at once must not claim the same number."""
    _LOCKS.mkdir(parents=True, exist_ok=True)
    with (_LOCKS / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_number(root: Path, lab: Callable[[int], Numbered]) -> int:
    """A number whose links and ports nobody uses."""
    first = zlib.crc32(os.fsencode(root)) % NUMBERS
    for step in range(NUMBERS):
        number = (first + step) % NUMBERS + 1
        place = lab(number)
        if not Path(f"/sys/class/net/{place.bridge}").exists() and all(_free_port(place.port(n)) for n in range(8)):
            return number
    raise Misconfigured(f"There are {NUMBERS} labs on this machine already; take one down first.")


def _free_port(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
