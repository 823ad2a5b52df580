"""Slurm clusters as people have them: the lab with accounting, on disk, with a past; and load from outside.

A cluster in daily use remembers thousands of ended jobs. They are made here in seconds: submitted by slurmrestd into a
partition that is down, and cancelled; `MinJobAge` is set so that slurmctld keeps them for as long as it is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import orjson

from isthmus._kit.http import HttpClient
from isthmus.engines.slurm.settings import RestSettings
from isthmus.engines.slurm.transports.tokens import Tokens
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.lab.slurm.login import LoginNode
from isthmus.lab.slurm.registering import manifests

from .reads import JOBS
from .servers import Server

NODES, CLIENTS, SESSIONS = 8, 8, 5
SITE = "bench"
USER = "postgres"
"""An account that every machine with the test packages has, and that has a shell."""
WAYS = ("Auto", "Command", "SSH", "REST")
SBATCH = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--wrap=true")


@dataclass
class Cluster:
    """A running lab, and its login node."""

    lab: SlurmLab
    login: LoginNode

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need."""
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.lab.place.conf)}

    def waiting_and_running(self) -> int:
        """Jobs that Slurm has not ended."""
        return len(self.lab.call("squeue", "--noheader", "--all", "--format=%A").split())

    def settle(self, seconds: float = 300) -> None:
        """Wait until every job has ended."""
        until(lambda: not self.waiting_and_running(), seconds, pause=0.2)

    def partition(self, state: str) -> None:
        """Open or close the partition that jobs go to."""
        self.lab.call("scontrol", "update", "partitionname=all", f"state={state}")


@contextlib.contextmanager
def cluster(remembered: int) -> Iterator[Cluster]:
    """What `isthmus lab up --slurm 8 --accounting` makes, on disk, with so many ended jobs in slurmctld's memory."""
    folder = Path(tempfile.mkdtemp(prefix="isl-bench-"))
    folder.chmod(0o711)
    lab = SlurmLab(folder / "lab")
    login = LoginNode(lab.place)
    try:
        lab.up(NODES, LabSettings(accounting=True, options={"MinJobAge": "36000"}))
        login = LoginNode(lab.place)
        login.up([USER, "root"])
        made = Cluster(lab, login)
        remember(made, remembered)
        yield made
    finally:
        login.down()
        lab.down(erase=True)
        shutil.rmtree(folder)


def remember(made: Cluster, count: int) -> None:
    """Have slurmctld remember so many more jobs that ended."""
    if count:
        made.partition("down")
        asyncio.run(_submit_many(made.lab, count))
        made.lab.call("scancel", f"--user={USER}")
        made.settle()
        made.partition("up")


async def _submit_many(lab: SlurmLab, count: int) -> None:
    tokens = Tokens(RestSettings(lab.place.rest_url, key_file=lab.place.jwt_key))
    http = HttpClient(lab.place.rest_url, connections=8, seconds=60)
    job = {"name": "past", "partition": "all", "current_working_directory": "/", "environment": {"PATH": "/bin"}}
    body = json.dumps({"script": "#!/bin/sh\ntrue\n", "job": job}).encode()
    headers = {"X-SLURM-USER-NAME": USER, "X-SLURM-USER-TOKEN": tokens.of(USER), "Content-Type": "application/json"}
    for answer in await asyncio.gather(
        *(http.ask("POST", "/slurm/v0.0.38/job/submit", headers, body) for _ in range(count))
    ):
        if answer.status != 200:
            raise RuntimeError(f"slurmrestd did not take a job: {answer.body[:300]!r}")
    await http.close()


def register(server: Server, made: Cluster, way: str) -> None:
    """Make the cluster a site that is reached in this way."""
    lab, login = made.lab, made.login
    for obj in manifests(lab.place, SITE):
        plural = "sites" if obj["kind"] == "Site" else "deviceclasses"
        if obj["kind"] == "Site":
            slurm = obj["spec"]["slurm"]
            slurm |= {"transport": way, "folder": str(lab.place.shared / f"{way.lower()}-{time.time_ns()}")}
            slurm["accounts"] = [{"tenant": "*", "user": USER, "shared": True}]
            if way == "SSH":
                slurm["ssh"] = {
                    "host": "127.0.0.1", "port": login.port, "user": "root", "keyFile": f"{login.folder}/{{user}}",
                    "knownHostsFile": str(login.known_hosts),
                }  # fmt: skip
            if way not in ("Auto", "REST"):
                slurm.pop("rest")
        server.request(f"/apis/isthmus.dev/v1/{plural}", obj)
    until(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{SITE}")["status"].get("phase") == "Ready")


def until(condition: Callable[[], Any], seconds: float = 120, pause: float = 0.02) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("it did not happen in time")
        time.sleep(pause)


def job(name: str, script: str = "true") -> dict[str, Any]:
    """A job of one shell line."""
    spec = {"command": ["sh", "-c", script], "placement": {"sites": [SITE]}}
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


class Watch:
    """Notes when each job was first seen with each of some properties. Bare lines: its own cost is in every figure."""

    def __init__(self, server: Server, **seen: Callable[[dict[str, Any]], Any]) -> None:
        self.times: dict[str, dict[str, float]] = {name: {} for name in seen}
        self._seen = seen
        request = urllib.request.Request(f"{server.url}{JOBS}?watch=true")
        request.add_header("Authorization", f"Bearer {server.token}")
        self._lines = urllib.request.urlopen(request)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the server was stopped
            for line in self._lines:
                arrived, event = time.time(), orjson.loads(line)
                name, status = event["object"]["metadata"].get("name"), event["object"].get("status") or {}
                for what, check in self._seen.items():
                    if name and name not in self.times[what] and check(status):
                        self.times[what][name] = arrived

    def wait(self, what: str, names: Sequence[str], seconds: float = 600) -> None:
        """Until all of these were seen so."""
        times = self.times[what]
        until(lambda: all(name in times for name in names), seconds)


def watch(server: Server) -> Watch:
    """Submissions and ends."""
    return Watch(
        server,
        submitted=lambda status: status.get("engineId"),
        ended=lambda status: status.get("phase") in ("Succeeded", "Failed", "Cancelled"),
    )


async def create(server: Server, bodies: Sequence[bytes]) -> list[float]:
    """Create jobs, `CLIENTS` at a time; how long each answer took. A client that costs next to nothing."""
    http = HttpClient(server.url, connections=CLIENTS, seconds=120)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    left, took = list(reversed(bodies)), []

    async def client() -> None:
        while left:
            body, begin = left.pop(), time.perf_counter()
            answer = await http.ask("POST", JOBS, headers, body)
            took.append(time.perf_counter() - begin)
            if answer.status != 201:
                raise RuntimeError(f"a job was not created: {answer.body[:300]!r}")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    await http.close()
    return took


def burst(server: Server, seen: Watch, names: Sequence[str], script: str = "true") -> float:
    """Seconds from the first sent to the last that Slurm has."""
    bodies = [json.dumps(job(name, script)).encode() for name in names]
    begin = time.time()
    asyncio.run(create(server, bodies))
    seen.wait("submitted", names)
    return max(seen.times["submitted"][name] for name in names) - begin


def shells(made: Cluster, count: int) -> float:
    """Seconds for eight shells that submit so many jobs in all."""
    line = f"for i in $(seq {count // CLIENTS}); do {' '.join(SBATCH)} >/dev/null || exit 1; done"
    words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sh", "-c", line]
    begin = time.perf_counter()
    started = [subprocess.Popen(words, env=made.environment) for _ in range(CLIENTS)]
    if any(shell.wait() for shell in started):
        raise RuntimeError("sbatch failed")
    return time.perf_counter() - begin


def sbatch(made: Cluster) -> float:
    """Seconds of one `sbatch`."""
    words = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *SBATCH]
    begin = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=made.environment)
    return time.perf_counter() - begin


async def over_one_connection(made: Cluster, count: int, at_once: int) -> tuple[list[float], float]:
    """FirecREST's way: one SSH connection, one `sbatch` per session. Seconds of each, and of all."""
    login, left, took = made.login, list(range(count)), list[float]()
    line = f"SLURM_CONF={made.lab.place.conf} {' '.join(SBATCH)}"
    async with asyncssh.connect(
        "127.0.0.1", login.port, username=USER, client_keys=[str(login.key_of(USER))], config=None, agent_path=None,
        known_hosts=str(login.known_hosts),
    ) as connection:  # fmt: skip

        async def client() -> None:
            while left:
                left.pop()
                begin = time.perf_counter()
                async with connection.create_process(line) as process:
                    done = await process.wait(check=True)
                assert done.stdout
                took.append(time.perf_counter() - begin)

        begin = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(at_once)))
        return took, time.perf_counter() - begin


def at(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
