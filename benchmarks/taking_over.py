"""How long nobody leads after the leader of two control planes on one PostgreSQL dies, or freezes."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from isthmus.testing.postgres import Postgres
from isthmus.testing.servers import ServerProcess, eventually

from .report import Figure, Section

TIMES = 5


def run(seconds: int) -> Section:
    section = Section(
        "Taking over",
        "Two control planes on one PostgreSQL, on one machine. The leader is killed (`kill -9`), which the other "
        "notices because its process is gone; or frozen (SIGSTOP), which looks like a machine that was lost: then "
        f"its lease must run out. The time is from the signal until the other leads; {TIMES} times each.",
    )
    for what, sign in (("killed", signal.SIGKILL), ("frozen, or on another machine", signal.SIGSTOP)):
        taken = sorted(_measure(sign) for _ in range(TIMES))
        reported = f"median {statistics.median(taken):.1f} s, longest {taken[-1]:.1f} s"
        section.figures.append(Figure(what, reported, "", None, "< 4 s", taken[-1] < 4))
    return section


def _measure(sign: signal.Signals) -> float:
    with tempfile.TemporaryDirectory() as folder, Postgres(durable=False) as database:
        first, second = (ServerProcess(Path(folder) / name, store=database.url) for name in ("first", "second"))
        try:
            first.start()
            eventually(lambda: _leads(first))
            second.start()
            assert first.process is not None
            os.kill(first.process.pid, sign)
            began = time.monotonic()
            while not _leads(second):
                time.sleep(0.02)
            return time.monotonic() - began
        finally:
            for server in (first, second):
                if server.process and server.process.poll() is None:
                    server.process.send_signal(signal.SIGCONT)
                    server.stop()


def _leads(server: ServerProcess) -> bool:
    return b"isthmus_leading 1.0" in server.request("/metrics")
