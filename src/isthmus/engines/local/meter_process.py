"""The process that reads meters beside a run: a shell with the lines of `engines/meters.py`, as the job's own user.

The supervisor starts it for runs whose device classes have a meter or report their use, reads along without ever
waiting, and asks it to look once more at the end. It is a session of its own outside of the job's sandbox and groups,
and dies with its supervisor. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.engines.local.processes import PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, arrange, prctl

LAST_LOOK_SECONDS = 15.0
"""How long the end of a run waits for the last look: commands are given five seconds each."""
_PIECE = 65536


@dataclass(frozen=True, slots=True)
class MeterReading:
    """One look at the meters."""

    at: float
    """Seconds since boot."""
    use: float | None
    """How busy the devices are, from 0 to 1."""
    joules: dict[str, tuple[str, float]]
    """By class: source, and joules since the start. Classes whose meter cannot be read are left out."""


NOTHING = MeterReading(0.0, None, {})


class MeterProcess:
    """Reads the meters of one run."""

    def __init__(self, plan: dict[str, Any], record: Path) -> None:
        self._sources: list[tuple[str, str]] = [(name, source) for name, source in plan["sources"]]
        self.seen = self._before = NOTHING
        self._rest = b""
        self._pipe, reported = os.pipe()
        os.set_blocking(self._pipe, False)
        supervisor = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            try:
                _become(plan, record, reported, supervisor)
            finally:
                os._exit(127)
        os.close(reported)

    def look(self) -> bool:
        """Take what it reported meanwhile; whether it will report no more."""
        over = False
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._pipe, _PIECE):
                self._rest += piece
            over = True
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if (seen := self._parse(line.decode(errors="replace").split())) is not None:
                self._before, self.seen = self.seen, seen
        return over

    @property
    def reported(self) -> bool:
        """Whether it has looked yet."""
        return self.seen is not NOTHING

    def joules(self, now: float | None = None) -> dict[str, tuple[str, float]]:
        """What the meters have counted when it last looked, or up to `now`, if all goes on as between its last looks.

        It looks when it likes; without that, samples would see nothing of a look or two at once, and no steady power.
        """
        between = self.seen.at - self._before.at
        if now is None or self._before is NOTHING or between <= 0:
            return self.seen.joules
        part = min(max(0.0, now - self.seen.at), 2 * between) / between
        before = self._before.joules
        return {
            name: (source, joules + part * (joules - before[name][1]) if name in before else joules)
            for name, (source, joules) in self.seen.joules.items()
        }

    def _parse(self, words: list[str]) -> MeterReading | None:
        if len(words) < 2 or not words[0].isdigit():
            return None
        at, use, *totals = words
        joules = {
            name: (source, int(total) / 1e6)
            for (name, source), total in zip(self._sources, totals, strict=False)
            if total.isdigit()
        }
        return MeterReading(int(at) / 1000, int(use) / 1000 if use.isdigit() else None, joules)

    def finish(self) -> None:
        """Have it look once more, and end it."""
        deadline = time.monotonic() + LAST_LOOK_SECONDS
        self._send(signal.SIGTERM)
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while not self.look() and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _become(plan: dict[str, Any], record: Path, reported: int, supervisor: int) -> None:
    """Turn this process into the shell; does not return."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    script = os.memfd_create("meters")
    os.write(script, plan["script"].encode())
    os.lseek(script, 0, os.SEEK_SET)
    log = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    arrange([script, reported, log])
    os.chdir("/")
    if (identity := plan["identity"]) is not None:
        os.setgroups(identity["groups"])
        os.setgid(identity["gid"])
        os.setuid(identity["uid"])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if os.getppid() == supervisor:
        os.execve("/bin/sh", ["/bin/sh", "-s"], plan["env"])  # noqa: S606
