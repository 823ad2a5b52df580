"""The filter of system calls: what the program does with a call, and what jobs get of it."""

from __future__ import annotations

import errno
import struct

import pytest

from isthmus.engines.base import Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.seccomp import program
from isthmus.testing.engines import new_run_id, wait_ended, whole_log

from .conftest import ACCOUNT

ALLOWED = 0x7FFF0000
X86, ARM = 0xC000003E, 0xC00000B7
NEW_USER, NEW_TIME, FORK, THREAD = 0x10000000, 0x80, 17, 0x3D0F00


def answer(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel would do: a machine for the few instructions that there are."""
    record = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    steps = list(struct.iter_unpack("=HBBI", code))
    assert len(steps) <= 4096, "more than the kernel takes"
    accumulator = position = 0
    while True:
        operation, yes, no, value = steps[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", record, value)[0]
        elif operation == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            position += yes if holds else no


def refused(code: int) -> int:
    assert code & 0xFFFF0000 == 0x00050000
    return code & 0xFFFF


@pytest.mark.parametrize(
    ("machine", "architecture", "calls"),
    [
        ("x86_64", X86, {"read": 0, "mount": 165, "clone": 56, "unshare": 272, "ioctl": 16, "bpf": 321}),
        ("aarch64", ARM, {"read": 63, "mount": 40, "clone": 220, "unshare": 97, "ioctl": 29, "bpf": 280}),
    ],
)
def test_what_the_program_answers(machine: str, architecture: int, calls: dict[str, int]) -> None:
    code = program(machine)

    def ask(name: str, *arguments: int) -> int:
        return answer(code, architecture, calls[name], *arguments)

    assert ask("read") == ALLOWED
    assert ask("clone", FORK) == ask("clone", THREAD) == ALLOWED
    assert refused(ask("clone", FORK | NEW_USER)) == errno.EPERM
    assert ask("unshare", 0x400) == ALLOWED
    assert refused(ask("unshare", NEW_USER)) == refused(ask("unshare", NEW_TIME)) == errno.EPERM
    assert refused(ask("mount")) == refused(ask("bpf")) == errno.EPERM
    assert ask("ioctl", 0, 0x5401) == ALLOWED
    assert refused(ask("ioctl", 0, 0x5412)) == errno.EPERM
    for unknown in (425, 426, 427, 435):
        assert refused(answer(code, architecture, unknown)) == errno.ENOSYS
    for other in (X86, ARM, 0x40000003):
        if other != architecture:
            assert refused(answer(code, other, calls["read"])) == errno.ENOSYS, "numbers of another architecture"


def test_numbers_that_would_pass_by_the_list() -> None:
    assert refused(answer(program("x86_64"), X86, 0x40000000 + 165)) == errno.ENOSYS
    assert program("riscv64") == b""


PROBE = """
import ctypes, errno, os, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    ctypes.set_errno(0)
    return libc.syscall(*words) if len(words) > 1 else 0, ctypes.get_errno()
assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == errno.EPERM, "user namespace"
numbers = {"x86_64": (425, 165, 321, 298), "aarch64": (425, 40, 280, 241)}[os.uname().machine]
for number in numbers:
    result, error = call(number, 1, 0, 0, 0, 0)
    assert result == -1 and error in (errno.EPERM, errno.ENOSYS), (number, error)
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run(["echo", "process"], capture_output=True, text=True).stdout.strip())
print([line for line in open("/proc/self/status") if line.startswith("Seccomp:")][0].split()[1])
"""


@pytest.mark.anyio
@pytest.mark.real
async def test_jobs_run_under_the_filter(engine: LocalEngine) -> None:
    run = Run(new_run_id(), "n", "j", ("python3", "-c", PROBE), account=ACCOUNT)
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    log = (await whole_log(engine, run.id)).decode()
    assert (end.exit_code, log) == (0, "thread\nprocess\n2\n")
    assert (await engine.probe([])).features["system-calls"] == "filtered (seccomp)"
