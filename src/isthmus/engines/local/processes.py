"""What the kernel knows of processes: identity that survives the reuse of numbers, and family trees."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def unshare(namespaces: int) -> None:
    """Give this process, which must have one thread, namespaces of its own."""
    if _libc.unshare(namespaces) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare {namespaces:#x}: {os.strerror(number)}")


def setns(descriptor: int, kind: int) -> None:
    """Put this process, which must have one thread, into a namespace of another."""
    if _libc.setns(descriptor, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns {kind:#x}: {os.strerror(number)}")


class _FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def filter_calls(program: bytes) -> None:
    """Put this process under a filter of system calls; it must have renounced new privileges."""
    wanted = _FilterProgram(len(program) // 8, program)
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(wanted), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def boot_id() -> str:
    """Distinguishes this boot of the machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name may hold spaces and brackets: what counts begins after the last bracket.
    return text[text.rindex(b")") + 2 :].decode().split()


def start_ticks(pid: int) -> int | None:
    """When a process began, in ticks since boot; None: there is none, or it is dead and not yet buried."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether that very process still lives."""
    return start_ticks(pid) == ticks


def open_pidfd(pid: int, ticks: int) -> int | None:
    """A handle of that very process; None: it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if is_alive(pid, ticks):
        return fd
    os.close(fd)
    return None


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def parents() -> dict[int, int]:
    """The parent of every process."""
    found: dict[int, int] = {}
    for pid in _pids():
        if (fields := _stat(pid)) is not None:
            found[pid] = int(fields[1])
    return found


def children(pid: int) -> set[int]:
    """The children of a process; with one thread, and a kernel that says, without looking at all processes."""
    try:
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()}
    except FileNotFoundError:
        return {child for child, parent in parents().items() if parent == pid}


def descendants(ancestor: int, family: dict[int, int]) -> set[int]:
    """Everything that a process begot, directly or not."""
    children: dict[int, list[int]] = {}
    for child, parent in family.items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def marked_with(marker: bytes) -> set[int]:
    """Processes that have this `NAME=value` in the environment they were started with, where we may look."""
    found: set[int] = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def send(pids: set[int], number: signal.Signals) -> None:
    """Signal each; those that are gone need none."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def arrange(sources: list[int]) -> None:
    """Make these the descriptors 0, 1, 2, …; first moved out of the way, since they may overlap."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in sources]
    for target, fd in enumerate(moved):
        os.dup2(fd, target, inheritable=True)
