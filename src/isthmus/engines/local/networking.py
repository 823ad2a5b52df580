"""A network of its own for a run: a network namespace whose traffic slirp4netns carries out.

The job's process leaves the machine's network before it becomes the sandbox (`leave`), and the supervisor then connects
slirp4netns to the namespace while the sandbox is being made: neither waits for the other. The loopback inside is the
job's own, the machine's is not reached from there, and nothing from outside reaches in. slirp4netns counts as part of
the job (its group of processes and limits), ends with it, and ends when its supervisor is killed, because the pipe
`exit` then closes. As root it runs in an empty root without capabilities; in any case under its own filter of system
calls. Whoever will lead a connection to a port of the job enters the namespace of the supervisor's child.

Without root the namespace needs a user namespace that owns it. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from isthmus.engines.local import cgroups
from isthmus.engines.local.processes import CLONE_NEWNET, CLONE_NEWUSER, arrange, unshare

PROGRAM = "slirp4netns"
NAMESERVER = "10.0.2.3"
"""Where slirp4netns answers for the machine's own resolver."""
_READY_SECONDS = 20.0
_READY_FD, _EXIT_FD = 3, 4


def leave(made: int) -> None:
    """Leave the machine's network for an empty one, and say so through the descriptor."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        unshare(CLONE_NEWNET)
    else:
        unshare(CLONE_NEWUSER | CLONE_NEWNET)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    os.write(made, b"+")
    os.close(made)


class NetworkProcess:
    """slirp4netns for one run."""

    def __init__(self, program: str, job: int, made: int, group: cgroups.Group) -> None:
        """Connect the namespace of the process `job`, once it says through `made` that it has one."""
        if os.read(made, 1) != b"+":
            raise OSError("the job's process could not leave the machine's network")
        self._ready, ready = os.pipe()
        leave_with_us, self._exit = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                _become(program, job, group, ready, leave_with_us)
            finally:
                os._exit(127)
        os.close(ready)
        os.close(leave_with_us)

    def wait(self) -> None:
        """Return when the network is usable; raises OSError if it will not be."""
        try:
            poll = select.poll()
            poll.register(self._ready, select.POLLIN)
            if not poll.poll(_READY_SECONDS * 1000) or not os.read(self._ready, 1):
                raise OSError(f"{PROGRAM} did not connect the job's network; does /dev/net/tun work?")
        finally:
            os.close(self._ready)

    def leave_behind(self, lock: int, afterwards: Callable[[], None]) -> None:
        """End it, and let a process of its own see to what comes afterwards: taking an interface away takes the kernel
        tens of milliseconds, for which the end of a run does not wait."""
        handle = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if os.fork():
            os.close(handle)
            return
        try:
            os.close(lock)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(_READY_SECONDS * 1000)
            afterwards()
        finally:
            os._exit(0)


def _become(program: str, job: int, group: cgroups.Group, ready: int, leave_with_us: int) -> None:
    """Turn this process into slirp4netns; does not return."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    cgroups.enter(group)
    null = os.open(os.devnull, os.O_RDWR)
    arrange([null, null, null, ready, leave_with_us])
    words = [program, "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp"]
    words += [f"--ready-fd={_READY_FD}", f"--exit-fd={_EXIT_FD}", "--netns-type=path"]
    words += ["--enable-sandbox"] if os.geteuid() == 0 else [f"--userns-path=/proc/{job}/ns/user"]
    os.execve(program, [*words, f"/proc/{job}/ns/net", "tap0"], {"PATH": "/usr/bin:/bin"})  # noqa: S606


def try_out(program: str, command: list[str]) -> int:
    """Run a command in a network of its own, as a supervisor would; its exit code."""
    made, said = os.pipe()
    child = os.fork()
    if not child:
        try:
            leave(said)
            os.execv(command[0], command)  # noqa: S606
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(127)
    os.close(said)
    network = NetworkProcess(program, child, made, cgroups.Group())
    network.wait()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.kill(network.pid, signal.SIGKILL)
    os.waitpid(network.pid, 0)
    return code


def resolver_lines(text: str) -> str | None:
    """The job's resolv.conf, where the machine's names a resolver on its own loopback; None: it serves as it is."""
    lines = text.splitlines()
    servers = [line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1]
    if not any(server.startswith("127.") or server == "::1" for server in servers):
        return None
    kept = [line for line in lines if line.startswith(("search", "domain", "options"))]
    return "\n".join([*kept, f"nameserver {NAMESERVER}", ""])
