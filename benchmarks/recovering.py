"""How soon everything is known again: after the control plane was killed, and after Slurm did not answer.

Jobs wait in a partition that is down. While nobody looks, a half of them is cancelled by Slurm's own command. From the
moment that both sides answer again it is counted until the API shows the truth of all of them.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

from isthmus.client.sync import Client

from . import sites
from .report import Figure, Section
from .servers import Server, isthmus, wait_for

AWAY = 10.0
LONG = "sleep 1000"


def recovery(section: Section, way: str, remembered: int, in_flight: int) -> None:
    """Both, on one cluster."""
    with sites.cluster(remembered) as made, isthmus() as server:
        sites.register(server, made, way)
        made.partition("down")
        sites.burst(server, sites.watch(server), [f"flight-{number}" for number in range(in_flight)], LONG)
        killed = _known_again(made, server, lambda half: _kill(made, server, half), lambda: _start(server))
        _figure(section, way, in_flight, "the control plane was killed for 10 s", killed)
        sites.burst(server, sites.watch(server), [f"more-{number}" for number in range(in_flight // 2)], LONG)
        what = "slurmrestd" if way == "REST" else "slurmctld"
        away = _known_again(made, server, lambda half: _stop_slurm(made, way, half), lambda: _start_slurm(made, way))
        _figure(section, way, in_flight, f"{what} did not answer for 10 s", away)


def _figure(section: Section, way: str, count: int, what: str, seconds: float) -> None:
    section.add(
        Figure(
            f"{way}: {count} jobs in flight known truthfully, after {what}",
            f"{seconds:.1f} s",
            target="10 s",
            met=seconds <= 10,
        )
    )


def _known_again(
    made: sites.Cluster, server: Server, away: Callable[[list[str]], None], back: Callable[[], None]
) -> float:
    """Seconds from the answer of both sides to the truth about all."""
    said = made.lab.call("squeue", "--noheader", "--format=%A", f"--user={sites.USER}")
    waiting = sorted(int(number) for number in said.split())
    half = [str(number) for number in waiting[: len(waiting) // 2]]
    begun = time.monotonic()
    away(half)
    time.sleep(max(0.0, AWAY - (time.monotonic() - begun)))
    back()
    client, begin = Client(server.url, server.token, "default"), time.monotonic()
    left = len(waiting) - len(half)
    # A slurmctld that starts opens the partition: some of those that waited may run then.
    sites.until(lambda: sum(len(client.jobs(phase=phase)) for phase in ("Queued", "Running")) == left, 1200, pause=0.1)
    return time.monotonic() - begin


def _kill(made: sites.Cluster, server: Server, half: list[str]) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    made.lab.call("scancel", *half)


def _start(server: Server) -> None:
    words = list(server.process.args)  # type: ignore[call-overload]
    server.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(f"{server.url}/readyz", server.process)


def _stop_slurm(made: sites.Cluster, way: str, half: list[str]) -> None:
    if way == "REST":
        made.lab.stop_rest()
        made.lab.call("scancel", *half)
    else:
        made.lab.call("scancel", *half)
        made.lab.stop_controller()


def _start_slurm(made: sites.Cluster, way: str) -> None:
    if way == "REST":
        made.lab.start_rest()
    else:
        made.lab.start_controller()
