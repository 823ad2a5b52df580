"""A Slurm site: how much of the cluster's own speed is left, and how little the cluster is asked.

Real Slurm, from the lab, with 8 nodes; slurmrestd, the quickest way in. Submissions are measured with the partition
closed, so that neither side pays for running the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson

from isthmus._kit.http import HttpClient
from isthmus.client.sync import Client
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import NodeSpec
from isthmus.lab.slurm.registering import manifests

from .load import wrk
from .reads import JOBS
from .report import Figure, Section
from .servers import Server, cpu_seconds, isthmus

NODES, BURST, BURSTS, LOGS, READ_JOBS = 8, 500, 5, 200, 1000
WARM_UP = 30
SITE = "bench"


def run(seconds: int) -> Section:
    section = Section(
        "A Slurm site",
        "The lab's Slurm 22.05 with 8 nodes beside everything else on this machine, reached by slurmrestd. Baselines "
        "are `sbatch` commands of the same script, one after the other, by a shell that does nothing else; for them "
        "and for ours beside them, the cluster's folders are in memory and the control plane's database is on disk.",
    )
    # To make a new inode, ext4 passes over every one that was freed in the last minutes: on disk, it would be measured
    # what was removed before.
    with _lab("/dev/shm") as lab, isthmus() as server, _closed(lab):
        _register(server, lab)
        _one_by_one(section, server, lab, max(30, seconds * 10))
    _bursts(section)
    with _lab() as lab, isthmus() as server:
        _register(server, lab)
        _ends(section, server, max(20, seconds * 6))
        _logs(section, server, lab, max(5, seconds))
        with _closed(lab):
            _readers(section, server, lab, max(3, seconds))
    return section


@contextlib.contextmanager
def _lab(where: str | None = None) -> Iterator[SlurmLab]:
    folder = Path(tempfile.mkdtemp(prefix="isl-bench-", dir=where))
    folder.chmod(0o711)
    lab = SlurmLab(folder / "lab")
    try:
        lab.up(0)
        for number in range(1, NODES + 1):
            lab.start_node(NodeSpec(lab.place.node_name(number), cpus=32, memory_mb=8000))
        for number in range(1, NODES + 1):
            lab.wait_usable(lab.place.node_name(number))
        yield lab
    finally:
        lab.down(erase=True)
        shutil.rmtree(folder)


def _register(server: Server, lab: SlurmLab) -> None:
    for obj in manifests(lab.place, SITE):
        plural = "sites" if obj["kind"] == "Site" else "deviceclasses"
        if obj["kind"] == "Site":
            obj["spec"]["slurm"] |= {
                "transport": "REST",
                "rest": {"url": lab.place.rest_url, "keyFile": str(lab.place.jwt_key)},
            }
        server.request(f"/apis/isthmus.dev/v1/{plural}", obj)
    _until(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{SITE}")["status"].get("phase") == "Ready")


@contextlib.contextmanager
def _closed(lab: SlurmLab) -> Iterator[None]:
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    yield
    lab.call("scancel", "--user=nobody")
    lab.call("scontrol", "update", "partitionname=all", "state=up")


def _until(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not happen in time")
        time.sleep(0.02)


def _job(name: str, script: str = "true") -> dict[str, Any]:
    spec = {"command": ["sh", "-c", script], "placement": {"sites": [SITE]}}
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


class _Watch:
    """Notes when each job was first seen with a property. Reads bare lines: its own cost is in every figure."""

    def __init__(self, server: Server, seen: Callable[[dict[str, Any]], Any]) -> None:
        self.times: dict[str, float] = {}
        self._seen = seen
        request = urllib.request.Request(f"{server.url}{JOBS}?watch=true")
        request.add_header("Authorization", f"Bearer {server.token}")
        self._lines = urllib.request.urlopen(request)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for line in self._lines:
            arrived = time.time()
            event = orjson.loads(line)
            name = event["object"]["metadata"].get("name")
            if name and name not in self.times and self._seen(event["object"].get("status") or {}):
                self.times[name] = arrived


def _one_by_one(section: Section, server: Server, lab: SlurmLab, count: int) -> None:
    plain = sorted(_sbatch(lab) for _ in range(count))
    watch = _Watch(server, lambda status: status.get("engineId"))
    ours = []
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}) as http:
        for number in range(count):
            http.post(JOBS, json=_job(f"one-{number}")).raise_for_status()
            accepted = time.time()
            _until(lambda name=f"one-{number}": name in watch.times)
            ours.append((watch.times[f"one-{number}"] - accepted) * 1000)
    ours.sort()
    base, mine = plain[len(plain) // 2] * 1000, ours[len(ours) // 2]
    section.add(
        Figure(
            "accepted to submitted, p50",
            f"{mine:.1f} ms",
            f"`sbatch` {base:.1f} ms",
            mine / base,
            "at most 1.3",
            mine / base <= 1.3,
        )
    )


def _bursts(section: Section) -> None:
    """Several, each on a cluster of its own right after its baseline: this machine is never the same for long."""
    found = sorted((_row_and_burst() for _ in range(BURSTS)), key=lambda times: times[0] / times[1])
    ratios = [row / burst for row, burst in found]
    row, burst = found[len(found) // 2]
    section.add(
        Figure(
            f"a burst of {BURST} jobs, from the first sent to the last submitted; the middle of {BURSTS}",
            f"{burst:.2f} s, {BURST / burst:.0f}/s (ratios {ratios[0]:.1f} to {ratios[-1]:.1f})",
            f"{BURST} times `sbatch` {row:.2f} s, {BURST / row:.0f}/s",
            row / burst,
            "at least 3",
            row / burst >= 3,
        )
    )


def _row_and_burst() -> tuple[float, float]:
    """Seconds for `sbatch` commands in a row, and for as many jobs at once."""
    with _lab("/dev/shm") as lab, isthmus() as server, _closed(lab):
        _register(server, lab)
        watch = _Watch(server, lambda status: status.get("engineId"))
        asyncio.run(_burst(server, watch, [f"first-{number}" for number in range(WARM_UP)]))
        begin = time.perf_counter()
        for _ in range(BURST):
            _sbatch(lab)
        in_a_row = time.perf_counter() - begin
        return in_a_row, asyncio.run(_burst(server, watch, [f"burst-{number}" for number in range(BURST)]))


def _sbatch(lab: SlurmLab) -> float:
    words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sbatch",
        "--parsable",
        "--output=/dev/null",
    ]
    begin = time.perf_counter()
    subprocess.run(
        [*words, "--chdir=/", "--wrap=true"], check=True, capture_output=True,
        env={"PATH": os.environ["PATH"], "SLURM_CONF": str(lab.place.conf)},
    )  # fmt: skip
    return time.perf_counter() - begin


async def _burst(server: Server, watch: _Watch, names: list[str]) -> float:
    """Seconds from the first sent to the last submitted."""
    begin = time.time()
    await _create(server, names)
    await asyncio.to_thread(_until, lambda: all(name in watch.times for name in names))
    return max(watch.times[name] for name in names) - begin


async def _create(server: Server, names: list[str]) -> None:
    """Create jobs, 16 at a time, with a client that costs next to nothing: it shares the server's cores."""
    http = HttpClient(server.url, connections=16, seconds=120)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    bodies = [json.dumps(_job(name)).encode() for name in names]
    for answer in await asyncio.gather(*(http.ask("POST", JOBS, headers, body) for body in bodies)):
        if answer.status != 201:
            raise RuntimeError(f"a job was not created: {answer.body[:300]!r}")
    await http.close()


def _ends(section: Section, server: Server, count: int) -> None:
    watch = _Watch(server, lambda status: status.get("phase") in ("Succeeded", "Failed"))
    names = [f"end-{number}" for number in range(count)]
    for name in names:
        server.request(JOBS, _job(name, "sleep 0.$(($$ % 9 + 1)); date +%s.%N"))
    _until(lambda: all(name in watch.times for name in names))
    client = Client(server.url, server.token, "default")
    delays = sorted(watch.times[name] - float(b"".join(client.logs(name))) for name in names)
    worst = delays[min(len(delays) - 1, int(len(delays) * 0.99))]
    section.add(
        Figure(
            "end of a job to status shown",
            f"p50 {delays[len(delays) // 2]:.2f} s, p99 {worst:.2f} s",
            "polling every 1 s",
            None,
            "p99 1.3 s",
            worst <= 1.3,
        )
    )


def _logs(section: Section, server: Server, lab: SlurmLab, seconds: int) -> None:
    names = [f"log-{number}" for number in range(LOGS)]
    for name in names:
        server.request(JOBS, _job(name, "while :; do date +%s.%N; sleep 1; done"))
    client = Client(server.url, server.token, "default")
    _until(lambda: len(client.jobs(phase="Running")) >= LOGS, 180)
    idle = _cpu(server, seconds)
    delays, busy = asyncio.run(_follow(server, names, seconds))
    delays.sort()
    worst = delays[int(len(delays) * 0.99)]
    section.add(
        Figure(
            f"following {LOGS} logs: cpu of the server",
            f"{busy * 100:.0f}% of a core",
            f"{idle * 100:.0f}% without followers",
            None,
            "below 50%",
            busy < 0.5,
        )
    )
    section.add(
        Figure(
            f"following {LOGS} logs: written to received",
            f"p50 {delays[len(delays) // 2] * 1000:.0f} ms, p99 {worst * 1000:.0f} ms ({len(delays)} lines)",
            "",
            None,
            "500 ms",
            worst <= 0.5,
        )
    )
    lab.call("scancel", "--user=nobody")
    _until(lambda: not client.jobs(phase="Running"), 180)


def _cpu(server: Server, seconds: float) -> float:
    before = cpu_seconds(server.process.pid)
    time.sleep(seconds)
    return (cpu_seconds(server.process.pid) - before) / seconds


async def _follow(server: Server, names: list[str], seconds: float) -> tuple[list[float], float]:
    delays: list[float] = []
    steady = asyncio.Event()
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, limits=limits, timeout=None) as http:

        async def follow(name: str) -> None:
            async with http.stream("GET", f"{JOBS}/{name}/log", params={"follow": "true"}) as answer:
                async for piece in answer.aiter_text():
                    if steady.is_set():
                        delays.extend(time.time() - float(line) for line in re.findall(r"^\d+\.\d{9}$", piece, re.M))

        tasks = [asyncio.create_task(follow(name)) for name in names]
        await asyncio.sleep(3)  # the past of each log is read first
        steady.set()
        before = cpu_seconds(server.process.pid)
        await asyncio.sleep(seconds)
        busy = (cpu_seconds(server.process.pid) - before) / seconds
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return delays, busy


def _readers(section: Section, server: Server, lab: SlurmLab, seconds: int) -> None:
    asyncio.run(_create(server, [f"read-{number}" for number in range(READ_JOBS)]))
    client = Client(server.url, server.token, "default")
    _until(lambda: len(client.jobs(phase="Queued")) >= READ_JOBS, 180)
    url = f"{server.url}{JOBS}/read-7"
    one = _asked(lab, lambda: wrk(url, token=server.token, connections=1, seconds=seconds))[1]
    load, many = _asked(lab, lambda: wrk(url, token=server.token, connections=500, seconds=seconds))
    section.add(
        Figure(
            f"500 clients reading the states of {READ_JOBS} jobs",
            f"{many} calls of slurmctld, {load.per_second:.0f} reads/s, {load.errors} errors",
            f"{one} calls with one client",
            None,
            "no more calls than with one",
            many <= one + 1 and not load.errors,
        )
    )


def _asked(lab: SlurmLab, call: Callable[[], Any]) -> tuple[Any, int]:
    before = _calls(lab)
    result = call()
    return result, _calls(lab) - before


def _calls(lab: SlurmLab) -> int:
    """Questions about jobs that slurmctld has answered; its own count."""
    said = lab.call("sdiag")
    return sum(int(m[1]) for m in re.finditer(r"REQUEST_JOB_INFO\w*\s+\(\s*\d+\) count:(\d+)", said))
