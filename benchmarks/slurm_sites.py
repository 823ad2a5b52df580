"""A Slurm cluster as people have it: `python -m benchmarks.slurm_sites [one bursts …] [--ways Auto …] [--bursts 5]`.

Each part of each way in takes one to four minutes (`memory` longer: it says how many jobs with `--many`) and can be
measured by itself: its rows of docs/benchmarks.md are replaced as soon as it is done, the others stay.

Default settings, folders on disk, a cluster with a past, by each way in; beside `sbatch` by eight shells and beside
FirecREST's way (one SSH connection, one `sbatch` for each job) on the same cluster, in turns with ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus._kit.http import HttpClient
from isthmus.client.sync import Client

from . import sites
from .reads import JOBS
from .report import Figure, Section, page, with_rows
from .servers import Server, cpu_seconds, isthmus
from .sites import WAYS, Cluster

ALLOWED = {"Auto": 1.0, "REST": 1.0, "Command": 1.5, "SSH": 1.5}
"""How many times as long as eight shells a burst may take."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    remembered: int = 2000
    burst: int = 304
    bursts: int = 5
    one: int = 60
    crowd: int = 10_000
    ours: int = 1000
    in_flight: int = 1000
    many: int = 20_000
    together: int = 500
    """Of those, so many in one burst."""


QUICK = Sizes(300, 104, 3, 20, 1000, 120, 120, 600, 50)


def run(seconds: int) -> Section:
    """Everything."""
    sizes = Sizes() if seconds >= 5 else QUICK
    section = _section(sizes)
    for part in PARTS.values():
        part(section, sizes, WAYS)
    return section


def _section(sizes: Sizes) -> Section:
    return Section(
        "A Slurm cluster as people have it",
        "What `isthmus lab up --slurm 8 --accounting` makes (Slurm 22.05, 16 cpus in 8 nodes, slurmdbd), with default "
        f"settings and all folders on disk; slurmctld remembers {sizes.remembered:,} ended jobs before anything begins "
        f"(with `MinJobAge` raised, so that it forgets none), {sizes.crowd:,} where ends are measured, {sizes.ours:,} "
        f"of them ours. Jobs are `true` and run while the next are submitted, for both sides. Bursts are {sizes.burst} "
        f"jobs by {sites.CLIENTS} clients, several in a row, each right after as many jobs by eight shells with "
        "`sbatch`, and ours again in front of FirecREST's way (one SSH connection, one `sbatch` for each job; 5 at "
        "once, because sshd refuses more than 10 sessions and those that end count for a while). The control plane's "
        "database is on the same disk.",
    )


def _one(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    with sites.cluster(sizes.remembered) as made:
        for way in ways:
            with isthmus() as server:
                sites.register(server, made, way)
                mine, plain, peer = _one_by_one(server, made, sizes.one)
            ratio = statistics.median(mine) / statistics.median(plain)
            section.add(
                Figure(
                    f"{way}: accepted to submitted, one job, p50",
                    f"{statistics.median(mine) * 1000:.1f} ms (p99 {sites.at(mine, 0.99) * 1000:.0f} ms)",
                    f"`sbatch` {statistics.median(plain) * 1000:.1f} ms, "
                    f"FirecREST's way {statistics.median(peer) * 1000:.1f} ms",
                    ratio,
                    "at most 1.3",
                    ratio <= 1.3,
                )
            )
            made.settle()


def _one_by_one(server: Server, made: Cluster, count: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each, in turns: this machine is never the same for long."""
    seen, mine, plain = sites.watch(server), list[float](), list[float]()
    asyncio.run(sites.create(server, [json.dumps(sites.job("first")).encode()]))
    seen.wait("ended", ["first"])
    for number in range(count):
        plain.append(sites.sbatch(made))
        made.settle()
        name = f"one-{number}"
        asyncio.run(sites.create(server, [json.dumps(sites.job(name)).encode()]))
        accepted = time.time()
        while name not in seen.times["submitted"]:
            time.sleep(0.0005)
        mine.append(max(0.0, seen.times["submitted"][name] - accepted))
        made.settle()
    peer, _ = asyncio.run(sites.over_one_connection(made, count, 1))
    return mine, plain, peer


def _bursts(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    for way in ways:
        with sites.cluster(sizes.remembered) as made, isthmus() as server:
            sites.register(server, made, way)
            seen = sites.watch(server)
            sites.burst(server, seen, [f"first-{number}" for number in range(16)])
            made.settle()
            before, peer = cpu_seconds(server.process.pid), 0.0
            plain, ours = list[float](), list[float]()
            for turn in range(sizes.bursts):
                plain.append(sites.shells(made, sizes.burst))
                made.settle()
                names = [f"burst-{turn}-{number}" for number in range(sizes.burst)]
                ours.append(sites.burst(server, seen, names))
                made.settle()
                seen.wait("ended", names)
            cost = (cpu_seconds(server.process.pid) - before) / (sizes.bursts * sizes.burst)
            _, peer = asyncio.run(sites.over_one_connection(made, sizes.burst, sites.SESSIONS))
            memory = server.memory()
        _burst_figures(section, way, ours, plain, peer)
        section.add(
            Figure(
                f"{way}: cpu of the server for each job, from created to ended",
                f"{cost * 1000:.1f} ms ({memory:.0f} MB resident at the end)",
                target="at most 5 ms",
                met=cost <= 0.005,
            )
        )


def _burst_figures(section: Section, way: str, ours: Sequence[float], plain: Sequence[float], peer: float) -> None:
    ratios = [mine / base for mine, base in zip(ours, plain, strict=True)]
    ratio, growth = statistics.median(ratios), ours[-1] / ours[0]
    section.add(
        Figure(
            f"{way}: bursts, from the first sent to the last submitted",
            " · ".join(f"{value:.2f}" for value in ours) + " s",
            f"eight shells {' · '.join(f'{value:.2f}' for value in plain)} s; FirecREST's way {peer:.2f} s",
            ratio,
            f"at most {ALLOWED[way]}",
            ratio <= ALLOWED[way],
        )
    )
    section.add(
        Figure(f"{way}: the last burst beside the first", f"{ours[-1]:.2f} s", f"{ours[0]:.2f} s", growth,
               "at most 1.2", growth <= 1.2)
    )  # fmt: skip


class _Client(threading.Thread):
    """One client that asks again and again until it is stopped."""

    def __init__(self, server: Server, method: str, path: str, body: Callable[[], bytes]) -> None:
        super().__init__(daemon=True)
        self._server, self._method, self._path, self._body = server, method, path, body
        self._over, self.took = threading.Event(), list[float]()

    def run(self) -> None:
        asyncio.run(self._ask())

    async def _ask(self) -> None:
        http = HttpClient(self._server.url, connections=1, seconds=60)
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        while not self._over.is_set():
            begin = time.perf_counter()
            answer = await http.ask(self._method, self._path, headers, self._body())
            self.took.append(time.perf_counter() - begin)
            if answer.status >= 300:
                raise RuntimeError(f"the API said {answer.body[:300]!r}")
        await http.close()

    def done(self) -> list[float]:
        self._over.set()
        self.join()
        return self.took


def _api(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    for way in ways:
        with sites.cluster(sizes.remembered) as made, isthmus() as server:
            sites.register(server, made, way)
            seen = sites.watch(server)
            sites.burst(server, seen, ["first"])
            held = json.dumps({"kind": "Job", "metadata": {"generateName": "held-"},
                               "spec": {"command": ["true"], "intent": "Hold"}}).encode()  # fmt: skip
            for what, method, path, body in (("creates", "POST", JOBS, held), ("reads", "GET", f"{JOBS}/first", b"")):
                _beside_a_burst(section, way, what, sizes, (server, seen, made), (method, path, body))


def _beside_a_burst(
    section: Section,
    way: str,
    what: str,
    sizes: Sizes,
    where: tuple[Server, sites.Watch, Cluster],
    request: tuple[str, str, bytes],
) -> None:
    server, seen, made = where
    method, path, body = request
    idle = _Client(server, method, path, lambda: body)
    idle.start()
    time.sleep(2)
    alone = idle.done()
    names = [f"{what}-{number}" for number in range(sizes.burst)]
    beside = _Client(server, method, path, lambda: body)
    beside.start()
    sites.burst(server, seen, names)
    took = beside.done()
    made.settle()
    seen.wait("ended", names)
    share, worst = statistics.mean(alone) / statistics.mean(took), sites.at(took, 0.99) * 1000
    section.add(
        Figure(
            f"{way}: {what} by one more client during a burst",
            f"{1 / statistics.mean(took):,.0f}/s, p99 {worst:.0f} ms",
            f"idle {1 / statistics.mean(alone):,.0f}/s, p99 {sites.at(alone, 0.99) * 1000:.0f} ms",
            share,
            "at least 0.5, p99 < 100 ms",
            share >= 0.5 and worst < 100,
        )
    )


def _ends(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    for way in ways:
        with sites.cluster(sizes.crowd - sizes.ours) as made, isthmus() as server:
            sites.register(server, made, way)
            seen = sites.watch(server)
            names = [f"end-{number}" for number in range(sizes.ours)]
            sites.burst(server, seen, names, "date +%s.%N")
            seen.wait("ended", names, 1200)
            _end_figure(section, way, "during a burst and after it", server, seen, names)
            calm = [f"calm-{number}" for number in range(min(60, sizes.ours))]
            for name in calm:
                server.request(JOBS, sites.job(name, "sleep 0.$(($$ % 9 + 1)); date +%s.%N"))
                time.sleep(0.3)
            seen.wait("ended", calm)
            _end_figure(section, way, "one by one", server, seen, calm)


def _end_figure(section: Section, way: str, when: str, server: Server, seen: sites.Watch, names: Sequence[str]) -> None:
    client = Client(server.url, server.token, "default")
    ended = {name: float(b"".join(client.logs(name))) for name in names}
    delays = [seen.times["ended"][name] - moment for name, moment in ended.items()]
    worst = sites.at(delays, 0.99)
    section.add(
        Figure(
            f"{way}: end of a job to status shown, {when} ({len(names)} jobs)",
            f"p50 {statistics.median(delays):.2f} s, p99 {worst:.2f} s, the longest {max(delays):.2f} s",
            target="p99 1.3 s",
            met=worst <= 1.3,
        )
    )


def _recovery(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    from .recovering import recovery

    for way in ways:
        recovery(section, way, sizes.remembered, sizes.in_flight)


def _memory(section: Section, sizes: Sizes, ways: Sequence[str]) -> None:
    """By the first way only: what is kept of jobs does not depend on how they were sent."""
    way = ways[0]
    with sites.cluster(0) as made, isthmus() as server:
        sites.register(server, made, way)
        seen, curve = sites.watch(server), dict[int, float]()
        for begin in range(0, sizes.many, sizes.together):
            names = [f"many-{number}" for number in range(begin, begin + sizes.together)]
            sites.burst(server, seen, names)
            seen.wait("ended", names, 1200)
            curve[begin + sizes.together] = server.memory()
            print(f"{way}: {curve[begin + sizes.together]:.0f} MB after {begin + sizes.together:,} jobs", flush=True)
    points = [curve[round(sizes.many * part / 4 / sizes.together) * sizes.together] for part in range(1, 5)]
    section.add(
        Figure(
            f"{way}: memory of the server over {sizes.many:,} jobs, all of them kept",
            " · ".join(f"{point:.0f}" for point in points) + " MB after each quarter",
            f"{curve[sizes.together]:.0f} MB after {sizes.together}",
            points[3] / points[1],
            "flat: at most 1.1 times that of the half",
            points[3] / points[1] <= 1.1,
        )
    )


PARTS: dict[str, Callable[[Section, Sizes, Sequence[str]], None]] = {
    "one": _one,
    "bursts": _bursts,
    "api": _api,
    "ends": _ends,
    "recovery": _recovery,
    "memory": _memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_sites", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="some of the ways in")
    parser.add_argument("--bursts", type=int, help="how many bursts in a row")
    parser.add_argument("--many", type=int, help="jobs of the part memory, in bursts of 500")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    parser.add_argument("--stdout", action="store_true", help="print the rows instead of writing docs/benchmarks.md")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else Sizes()
    sizes = replace(sizes, bursts=asked.bursts or sizes.bursts, many=asked.many or sizes.many)
    target = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
    for part in asked.parts or PARTS:
        for way in asked.ways[:1] if part == "memory" else asked.ways:
            begin, section = time.monotonic(), _section(sizes)
            PARTS[part](section, sizes, [way])
            print(f"{part} by {way}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            if asked.stdout:
                print(page([section]))
            else:
                target.write_text(with_rows(target.read_text(), section))


if __name__ == "__main__":
    main()
