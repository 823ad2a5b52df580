"""The filter of system calls that a job in the sandbox runs under, as a classic BPF program.

A sandbox is as good as the kernel beneath it. What jobs do not need and what most often had holes is refused, as Docker
and Flatpak do it: namespaces of their own, mounting, io_uring, bpf, keyrings, perf, modules. Everything else is allowed
(debuggers too: in the sandbox a job sees no processes but its own). Each refusal is an error that programs know how
to handle: EPERM, or ENOSYS where the C library then takes another way (clone3 becomes clone, whose flags can be seen).

The program is a list of instructions of eight bytes: load a word of the call's record, compare, jump forward, return.
Calls by other numbers than this machine's own (32-bit programs on x86_64, the x32 numbers) are refused altogether,
because the list would not hold for them.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import lru_cache

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# Offsets in the record of a call: number, architecture, and the lower half of each argument.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
# New namespaces: mount, cgroup, uts, ipc, user, pid, net; and time, which only unshare knows.
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_NEW_TIME = 0x00000080
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_VSOCK = 40

# Name: number on x86_64, on aarch64 (None: there is no such call).
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "uselib": (134, None),
    "vhangup": (153, 58),
}
# Programs ask whether the kernel has these, and do without.
_UNKNOWN: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
}
# Call, argument, bits that must not be in it.
_FLAGS: tuple[tuple[tuple[int, int], int, int], ...] = (
    ((56, 220), 0, _NAMESPACES),  # clone
    ((272, 97), 0, _NAMESPACES | _NEW_TIME),  # unshare
)
# Call, argument, values that it must not have.
_VALUES: tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...] = (
    ((16, 29), 1, (_TIOCSTI, _TIOCLINUX)),  # ioctl: typing into a terminal
    ((41, 198), 0, (_VSOCK,)),  # socket: talking to the host of a virtual machine
)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERROR | error)


@lru_cache(maxsize=4)
def program(machine: str = "", *, chroots: bool = False) -> bytes:
    """The program for a machine such as x86_64 (default: this one); empty for one that it is not written for.

    With `chroots`, what starts the job may go into another root; the job itself lacks the right to.
    """
    found = _MACHINES.get(machine or platform.machine())
    if found is None:
        return b""
    column, architecture = found
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, yes=1), _refuse(errno.ENOSYS)]
    steps.append(_step(_LOAD, _NUMBER))
    if column == 0:
        steps += [_step(_AT_LEAST, _X32, no=1), _refuse(errno.ENOSYS)]
    for error, calls in ((errno.EPERM, _REFUSED), (errno.ENOSYS, _UNKNOWN)):
        for name, numbers in calls.items():
            if (number := numbers[column]) is not None and not (chroots and name == "chroot"):
                steps += [_step(_EQUAL, number, no=1), _refuse(error)]
    for numbers, argument, bits in _FLAGS:
        steps += _look_at(numbers[column], argument, [_step(_ANY_BIT, bits, no=1), _refuse(errno.EPERM)])
    for numbers, argument, values in _VALUES:
        tests = [part for value in values for part in (_step(_EQUAL, value, no=1), _refuse(errno.EPERM))]
        steps += _look_at(numbers[column], argument, tests)
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)


def _look_at(number: int, argument: int, tests: list[bytes]) -> list[bytes]:
    """For one call: test an argument, and allow the call if no test refused it."""
    body = [_step(_LOAD, _ARGUMENTS + 8 * argument), *tests, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, no=len(body)), *body]
