"""Whether the process that holds a lease has died: known at once on the machine where it ran.

The holder writes a mark into the lease: the boot of its machine, its namespace of process ids, its id and when it
began. A candidate with the same boot and namespace can look; any other cannot, and must wait until the lease runs out.
An id that was given to another process is distinguished by its beginning. When in doubt, the process lives.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def mark_of(pid: int) -> str:
    """The mark of a process that runs; empty where none can be made."""
    began = _began(pid)
    place = _place()
    return f"{place}/{pid}/{began}" if place and began else ""


def has_died(mark: str) -> bool:
    """Whether a process is certainly gone."""
    place, _, rest = mark.rpartition("/")
    place, _, number = place.rpartition("/")
    if not place or place != _place() or not number.isdecimal() or not rest:
        return False
    pid = int(number)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # it is there, and another account's
    began = _began(pid)
    if began is None:
        return False  # there, but hidden from us; or gone just now, which the next look shows
    return began != rest or _state(pid) in ("Z", "X")


def _place() -> str:
    """Where process ids mean the same as here."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}" if boot else ""
    except OSError:
        return ""


def _fields(pid: int) -> list[str]:
    """What `/proc/<pid>/stat` says after the name, which may hold anything."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []


def _began(pid: int) -> str | None:
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else None


def _state(pid: int) -> str:
    return next(iter(_fields(pid)), "")
