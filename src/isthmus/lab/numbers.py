"""Labs have numbers: their links, addresses and ports follow from them, so no two labs of a kind may have the same.

What a lab keeps (nodes, certificates, the cluster's name) shows its number too. So the number stays its own while it is
down: a note on the machine says in which folder the lab is, and counts for as long as that folder says the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from isthmus.errors import Misconfigured

from .layout import LabPlace

NUMBERS = 250
_LOCKS = Path("/run/lock")
_NOTES = Path("/var/lib")
"""Where a reboot, after which all labs are down, does not reach. One file for each lab, so that nothing is left."""


@contextlib.contextmanager
def machine_lock(name: str) -> Iterator[None]:
    """Two labs that are set up at once must not claim the same number."""
    _LOCKS.mkdir(parents=True, exist_ok=True)
    with (_LOCKS / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_number(root: Path, lab: Callable[[int], LabPlace]) -> int:
    """A number whose links and ports nobody uses, and that no lab has that is down."""
    first = zlib.crc32(os.fsencode(root)) % NUMBERS
    for step in range(NUMBERS):
        place = lab((first + step) % NUMBERS + 1)
        if not has_link(place) and _holder(place) is None and not _taken_ports(place):
            return place.number
    raise Misconfigured(f"There are {NUMBERS} labs on this machine already; erase one first.")


def hold(place: LabPlace) -> None:
    """Note that the number is this lab's until it is erased; raises Misconfigured if it is so no more."""
    other = _holder(place)
    if other is not None and other != place.root:
        raise Misconfigured(
            f"The lab in {place.root} lost its number {place.number} to the one in {other}. Take that one down "
            "(isthmus lab down --data DIR), and then erase one of the two (isthmus lab down --erase --data DIR)."
        )
    if not has_link(place) and (taken := _taken_ports(place)):
        raise Misconfigured(
            f"Another program has port {taken[0]} of the lab in {place.root}; `ss -ltnp` shows which. End it, "
            "or make the lab anew after: isthmus lab down --erase --data DIR."
        )
    _note(place).write_text(str(place.root))


def let_go(place: LabPlace) -> None:
    """The lab is erased."""
    with contextlib.suppress(FileNotFoundError):
        if _note(place).read_text() == str(place.root):
            _note(place).unlink()


def has_link(place: LabPlace) -> bool:
    """Whether the network of a lab with this number is there."""
    return Path(f"/sys/class/net/{place.bridge}").exists()


def _note(place: LabPlace) -> Path:
    return _NOTES / f"isthmus-lab-{place.bridge}"


def _holder(place: LabPlace) -> Path | None:
    """The folder of the lab that has this number, running or not."""
    try:
        root = Path(_note(place).read_text())
    except FileNotFoundError:
        return None
    return root if LabPlace.of(root).number == place.number else None


def _taken_ports(place: LabPlace) -> list[int]:
    return [port for port in map(place.port, range(8)) if not _free_port(port)]


def _free_port(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
