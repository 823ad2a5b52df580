"""Into a run that is under way: a connection to a port of it, or a command beside it.

The keeper forks a process for each request. It enters namespaces of the job and hands what it opened there to whoever
asked, as descriptors: a socket stays in the network in which it was made, so that from then on nothing stands between
the control plane and the program.

A **connection** needs the network of the job alone. A **command** runs in everything that is the job's: its cgroup,
its sandbox with all namespaces, its account, its filter of system calls, its environment (the launcher sets it). Once
in the job's mount namespace nothing more is imported or opened by name, since all files there may be the job's; and
the process is not dumpable, since jobs of the same account could otherwise take it over before it is the command.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSCTTY, TIOCSWINSZ
from typing import Any

from isthmus.engines.local import cgroups, seccomp
from isthmus.engines.local.layout import RunFolder, read_record
from isthmus.engines.local.processes import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    arrange,
    boot_id,
    children,
    filter_calls,
    is_alive,
    prctl,
    setns,
)

OPEN, NOT_RUNNING, CLOSED, FAILED, REFUSED = "open", "not-running", "closed", "failed", "refused"
"""What is answered: with descriptors; the run is not under way; nothing listens; an error; it cannot be."""
SHARED = "the job shares the network of its machine, where others listen too"
DIAL_SECONDS = 5.0
MOST_WORDS = 4 * 2**20
"""Bytes of a command."""
_HANG_UP_SECONDS = 2.0
# What starts a job in the sandbox has, as root: to become the tenant, and to go into the image.
_CAP_SETGID, _CAP_SETUID, _CAP_SYS_CHROOT = 6, 7, 18
_MOST_CAPABILITIES = 64
_NS_GET_USERNS, _NS_GET_PARENT = 0xB701, 0xB702


class _Refusal(Exception):
    """Why not, in the word for it and a sentence."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.word, self.why = word, why


def lead(word: str, folder: RunFolder, argument: str, connection: socket.socket) -> None:
    """Answer one request; this process was forked for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        job = _job(folder)
        if word == "connect":
            with _dial(job, int(argument)) as found:
                socket.send_fds(connection, [f"{OPEN}\n".encode()], [found.fileno()])
        else:
            _execute(folder, job, int(argument), connection)
    except _Refusal as refusal:
        _say(connection, f"{refusal.word} {refusal.why}")
    except (OSError, ValueError) as error:
        _say(connection, f"{FAILED} {error}")


def _say(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(text.replace("\n", " ").encode("utf-8", "replace")[:1000] + b"\n")


def _job(folder: RunFolder) -> int:
    """The process that the run's supervisor started: what makes the sandbox, or the job itself where there is none."""
    started = read_record(folder.started)
    if started is None or folder.ended.exists() or started.get("boot") != boot_id():
        raise _Refusal(NOT_RUNNING, "the job does not run")
    job, ticks = started.get("job"), started.get("job_ticks")
    if not isinstance(job, int) or not isinstance(ticks, int):
        raise _Refusal(REFUSED, "the job was started by an earlier version of Isthmus; run it once more")
    if not is_alive(job, ticks):
        raise _Refusal(NOT_RUNNING, "the job does not run")
    return job


def _namespaces(job: int, inside: int, kinds: dict[str, int]) -> list[tuple[int, int]]:
    """Those of a process that differ from ours, open, in the order in which they are entered."""
    found = []
    for name, kind in kinds.items():
        descriptor = os.open(f"/proc/{inside}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(descriptor).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
            os.close(descriptor)
        else:
            found.append((descriptor, kind))
    if inside != job and inside not in children(job):
        raise _Refusal(NOT_RUNNING, "the job does not run")
    return _owners_first(found)


def _owners_first(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each after the namespace of accounts that owns it, from the outermost to that of the job.

    For an ordinary user there are several: one for the network, one in which the sandbox was made, and one by which
    what made it gave its rights up.
    """
    accounts = [descriptor for descriptor, kind in found if kind == CLONE_NEWUSER]
    others = [entry for entry in found if entry[1] != CLONE_NEWUSER]
    owners = [_related(descriptor, _NS_GET_USERNS) for descriptor, _ in others]
    order = []
    for descriptor in reversed([*accounts, *_parents(accounts)]):
        mine = os.fstat(descriptor).st_ino
        order.append((descriptor, CLONE_NEWUSER))
        order += [entry for entry, owner in zip(others, owners, strict=True) if owner and owner[1] == mine]
    for owner in owners:
        if owner:
            os.close(owner[0])
    return [*(entry for entry in others if entry not in order), *order]


def _parents(accounts: list[int]) -> list[int]:
    """The namespaces of accounts around one, up to ours, the innermost first."""
    found: list[int] = []
    own = os.stat("/proc/self/ns/user").st_ino
    while accounts and (above := _related((accounts + found)[-1], _NS_GET_PARENT)):
        if above[1] == own:
            os.close(above[0])
            break
        found.append(above[0])
    return found


def _related(descriptor: int, which: int) -> tuple[int, int] | None:
    """Another namespace of accounts, open, and its number; None if it is outside of ours."""
    try:
        other = ioctl(descriptor, which)
    except OSError:
        return None
    os.set_inheritable(other, False)
    return other, os.fstat(other).st_ino


def _dial(job: int, port: int) -> socket.socket:
    """A connection to a port of the job's own network."""
    kinds = {"user": CLONE_NEWUSER, "net": CLONE_NEWNET}
    for inside in (job, *sorted(children(job))):
        entered = _namespaces(job, inside, kinds)
        if any(kind == CLONE_NEWNET for _, kind in entered):
            break
    else:
        raise _Refusal(REFUSED, SHARED)
    for descriptor, kind in entered:
        setns(descriptor, kind)
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(DIAL_SECONDS)
        try:
            connection.connect((address, port))
        except OSError:
            connection.close()
            continue
        return connection
    raise _Refusal(CLOSED, f"nothing listens on port {port} of the job")


def _execute(folder: RunFolder, job: int, size: int, connection: socket.socket) -> None:
    connection.sendall(b"ready\n")
    wanted = json.loads(_exactly(connection, size))
    spec = read_record(folder.spec) or {}
    command = _command(spec, wanted["command"])
    inside = job
    if spec["sandboxed"]:
        within = children(job)
        if len(within) != 1:
            raise _Refusal(NOT_RUNNING, "the job is just starting, or ending")
        inside = within.pop()
    kinds = {"user": CLONE_NEWUSER, "ipc": CLONE_NEWIPC, "net": CLONE_NEWNET, "pid": CLONE_NEWPID, "mnt": CLONE_NEWNS}
    entered = _namespaces(job, inside, kinds)
    if spec["sandboxed"] and not any(kind == CLONE_NEWNS for _, kind in entered):
        raise _Refusal(NOT_RUNNING, "the job is just starting, or ending")
    theirs, ours, status, written = _streams(wanted.get("terminal"))
    filtered = seccomp.program(chroots=bool(spec.get("chroots"))) if "--seccomp" in spec["options"] else b""
    if not spec["sandboxed"]:
        os.chdir(folder.work)

    report = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def become() -> None:
        _become(spec, command, [*theirs, report], filtered, bool(wanted.get("terminal")))

    cgroup = cgroups.Group.from_json(spec["cgroup"]) if spec["cgroup"] else cgroups.Group()
    child = _enter_and_fork(cgroup, entered, [*ours, status, written, connection.fileno()], theirs, become)
    for descriptor in set(theirs):
        os.close(descriptor)
    socket.send_fds(connection, [f"{OPEN}\n".encode()], [*ours, status])
    for descriptor in (*ours, status, connection.fileno()):
        os.close(descriptor)
    _accompany(child, job, written)


def _command(spec: dict[str, Any], words: list[str]) -> list[str]:
    """What starts the command as the job was started, without what makes the sandbox."""
    argv: list[str] = spec["argv"]
    first = next((at + 1 for at, word in enumerate(argv) if word == "--"), 0) if spec["sandboxed"] else 0
    launcher = next(at for at, word in enumerate(argv) if word.endswith("/launcher") and argv[at - 1] == "/bin/sh")
    return [*argv[first : launcher + 1], *words]


def _streams(terminal: dict[str, int] | None) -> tuple[list[int], list[int], int, int]:
    """Descriptors of the command and of who asked, and both ends of where its end is said."""
    status, written = os.pipe()
    if terminal:
        master, slave = os.openpty()
        size = struct.pack("HHHH", int(terminal["rows"]) & 0xFFFF, int(terminal["columns"]) & 0xFFFF, 0, 0)
        ioctl(master, TIOCSWINSZ, size)
        return [slave, slave, slave], [master], status, written
    (stdin, fills), (reads, stdout), (reads_errors, stderr) = os.pipe(), os.pipe(), os.pipe()
    return [stdin, stdout, stderr], [fills, reads, reads_errors], status, written


def _enter_and_fork(
    cgroup: cgroups.Group,
    entered: list[tuple[int, int]],
    foreign: list[int],
    theirs: list[int],
    become: Callable[[], None],
) -> int:
    """Fork a process that enters the job's groups and namespaces, and another there, which becomes the command.

    A pipe ends when nobody holds it: neither may keep `foreign`, nor the first what is the command's.
    """
    child = os.fork()
    if child:
        return child
    try:
        for descriptor in foreign:
            os.close(descriptor)
        cgroups.enter(cgroup)
        Path("/proc/self/oom_score_adj").write_text("500")
        prctl(PR_SET_DUMPABLE, 0)
        for descriptor, kind in entered:
            setns(descriptor, kind)
        inner = os.fork()  # a namespace of processes is that of children
        if inner:
            for descriptor in set(theirs):
                os.close(descriptor)
            _, state = os.waitpid(inner, 0)
            code = os.waitstatus_to_exitcode(state)
            if code < 0:
                signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
                os.kill(os.getpid(), -code)
            os._exit(code if code >= 0 else 128 - code)
        become()
    except BaseException as error:  # noqa: BLE001 - it has no other way to say so
        with contextlib.suppress(OSError):
            os.write(2, f"isthmus: the command could not be started: {error}\n".encode())
    finally:
        os._exit(126)


def _become(spec: dict[str, Any], command: list[str], streams: list[int], filtered: bytes, terminal: bool) -> None:
    """Turn this process into the command; does not return."""
    os.setsid()
    go, given = os.pipe()
    os.write(given, b"go\n")
    os.close(given)
    arrange([*streams, go])
    if terminal:
        ioctl(0, TIOCSCTTY, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    for name, value in spec["rlimits"].items():
        limit = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    if spec["sandboxed"]:
        kept = {_CAP_SETGID, _CAP_SETUID} | ({_CAP_SYS_CHROOT} if spec.get("chroots") else set())
        for capability in range(_MOST_CAPABILITIES):
            if capability not in kept:
                with contextlib.suppress(OSError):  # the kernel knows fewer
                    prctl(PR_CAPBSET_DROP, capability)
        os.chdir("/" if spec.get("chroots") else "/job")
    if (identity := spec["identity"]) is not None:
        os.setgroups(identity["groups"])
        os.setgid(identity["gid"])
        os.setuid(identity["uid"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if filtered:
        filter_calls(filtered)
    os.execve(command[0], command, {**spec["env"], "ISTHMUS_BESIDE": "1"})  # noqa: S606


def _accompany(child: int, job: int, written: int) -> None:
    """Say how the command ended; end it with the job, and when nobody is there any more who would hear."""
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(written, 0)
    try:
        poll.register(os.pidfd_open(job), select.POLLIN)
        left = not any(descriptor == ended for descriptor, _ in poll.poll())
    except ProcessLookupError:
        left = True
    if left:
        for number, patience in ((signal.SIGHUP, _HANG_UP_SECONDS), (signal.SIGKILL, None)):
            _signal_tree(child, number)
            if select.select([ended], [], [], patience)[0]:
                break
    _, state = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        os.write(written, f"{os.waitstatus_to_exitcode(state)}\n".encode())


def _signal_tree(child: int, number: signal.Signals) -> None:
    """The command is a session of its own below the process that entered."""
    for process in (*children(child), *((child,) if number == signal.SIGKILL else ())):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, number) if process != child else os.kill(process, number)


def _exactly(connection: socket.socket, size: int) -> bytes:
    if not 0 < size <= MOST_WORDS:
        raise ValueError("the command is too long")
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 65536))
        if not part:
            raise ValueError("the request broke off")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
