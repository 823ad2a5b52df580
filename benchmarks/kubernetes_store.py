"""Kubernetes as the store: what a job costs the API server, and what it costs to watch and to hold thousands of
objects.

A real API server without nodes; the jobs run at the local site, so that every request that is counted is one of the
store. The API server itself counts them (`apiserver_request_total`), by verb and resource. Leases, lists and the
opening of watches do not belong to single jobs and are left out.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.testing.kubernetes import running_api_server
from isthmus.testing.kubernetes_store import calling, settled
from isthmus.testing.servers import ServerProcess, eventually

from .report import Figure, Section
from .servers import cpu_seconds

_COUNTED = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.M)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OURS = {"jobs", "events", "tenants", "sites", "profiles", "experiments", "deviceclasses", "tokens", "namespaces"}
_WATCHED = 20.0
"""Seconds for which the processor time of a control plane at rest is measured."""
_AT_REST = 8
JOB = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "spec": {"command": ["true"], "resources": {"cpus": "10m"}}}
ENDED = {
    "phase": "Succeeded", "attempt": 0, "site": "local", "engineId": "4711", "exitCode": 0,
    "submittedAt": "2026-01-01T00:00:00Z", "placedAt": "2026-01-01T00:00:01Z", "startedAt": "2026-01-01T00:00:02Z",
    "finishedAt": "2026-01-01T00:00:03Z",
    "usage": {"elapsedSeconds": 1.0, "cpuSeconds": 0.5, "peakMemoryBytes": 1048576},
    "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"}],
}  # fmt: skip


def measure(section: Section, *, jobs: int, watched: int, held: int) -> None:
    """Add the figures of the store."""
    with running_api_server(controllers=True) as control, tempfile.TemporaryDirectory() as folder:
        asyncio.run(settled(control.kubeconfig))
        server = ServerProcess(Path(folder) / "data", store=f"kubernetes:{control.kubeconfig}")
        server.start()
        try:
            eventually(lambda: _phase(server) == "Ready", timeout=120)
            section.add(_requests(server, control, jobs))
            server.stop()
            asyncio.run(_fill(control.kubeconfig, 0, watched))
            server.start()
            section.add(_watching(server, watched))
            server.stop()
            asyncio.run(_fill(control.kubeconfig, watched, held))
            server.start()
            section.add(_holding(server, held))
        finally:
            server.stop()


def _phase(server: ServerProcess) -> str:
    return str(server.request("/apis/isthmus.dev/v1/sites/local")["status"].get("phase"))


def _requests(server: ServerProcess, control: LabControlPlane, jobs: int) -> Figure:
    before = counted(control)
    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: server.submit(f"bench-{number}", "true", resources={"cpus": "10m"}), range(jobs)))
    for number in range(jobs):
        server.finished(f"bench-{number}", timeout=600)
    took = time.monotonic() - begin
    settle(lambda: counted(control))
    spent = counted(control)
    spent.subtract(before)
    each = sum(spent.values()) / jobs
    measured = f"{each:.1f}: {reported(spent, jobs)} ({took:.0f} s in all)"
    figure = Figure(f"as store, {jobs} jobs: API requests for each", measured, target="below 8")
    figure.met = each < 8
    return figure


def settle(count: Callable[[], Counter[str]]) -> None:
    """Events are written behind the work: wait until no more come."""
    seen = [-1, -2]
    while len(set(seen[-4:])) > 1:
        seen.append(sum(count().values()))
        time.sleep(2)


def reported(spent: Counter[str], jobs: int) -> str:
    """What was asked, most first."""
    return ", ".join(f"{what} {count / jobs:.2f}" for what, count in spent.most_common() if count / jobs >= 0.01)


def counted(control: LabControlPlane) -> Counter[str]:
    """How often the API server was asked what, so far."""
    found: Counter[str] = Counter()
    for labels, value in _COUNTED.findall(_metrics(control)):
        named = dict(_LABEL.findall(labels))
        group, resource, verb = named.get("group"), named.get("resource"), named.get("verb")
        if resource not in _OURS or group not in ("isthmus.dev", "") or verb in ("WATCH", "LIST", "CONNECT"):
            continue
        part = f"/{named['subresource']}" if named.get("subresource") else ""
        found[f"{verb} {resource}{part}"] += int(float(value))
    return found


def _metrics(control: LabControlPlane) -> str:
    authority = control.authority
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(*authority.issue("admin", "admin", ["system:masters"]))
    with urllib.request.urlopen(f"{control.url}/metrics", timeout=60, context=context) as answer:
        return str(answer.read().decode())


def _watching(server: ServerProcess, watched: int) -> Figure:
    """The processor time of a control plane that has nothing to do but to follow what is there."""
    _rest(server)
    before, begin = _cpu_seconds(server), time.monotonic()
    time.sleep(_WATCHED)
    share = (_cpu_seconds(server) - before) / (time.monotonic() - begin)
    figure = Figure(f"as store, steady watch of {watched} jobs: share of a core", f"{share:.1%}", target="below 5 %")
    figure.met = share < 0.05
    return figure


def _rest(server: ServerProcess) -> None:
    """Wait until it has read everything and leads: until it uses little processor time for some seconds in a row."""
    used, quiet = _cpu_seconds(server), 0
    for _ in range(120):
        time.sleep(1)
        now = _cpu_seconds(server)
        quiet = quiet + 1 if now - used < 0.1 else 0
        if quiet == _AT_REST:
            return
        used = now


def _holding(server: ServerProcess, held: int) -> Figure:
    _rest(server)
    resident = _status(server, "VmRSS") / 1024
    peak = _status(server, "VmHWM") / 1024
    measured = f"{resident:.0f} MB ({peak:.0f} MB while it read them)"
    figure = Figure(f"as store, memory of the control plane at {held} jobs", measured, target="below 300 MB")
    figure.met = resident < 300
    return figure


def _cpu_seconds(server: ServerProcess) -> float:
    assert server.process is not None
    return cpu_seconds(server.process.pid)


def _status(server: ServerProcess, name: str) -> int:
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1])  # type: ignore[index]


async def _fill(kubeconfig: Path, first: int, last: int) -> None:
    """Jobs that ended long ago, put there while no control plane runs."""
    async with calling(kubeconfig) as api:

        async def put(numbers: Iterable[int]) -> None:
            path = "/apis/isthmus.dev/v1/namespaces/default/jobs"
            for number in numbers:
                made: Any = {**JOB, "metadata": {"name": f"old-{number}"}}
                made = await api.send("POST", path, "a job", made)
                await api.send("PUT", f"{path}/old-{number}/status", "its end", {**made, "status": ENDED})

        await asyncio.gather(*(put(range(first + lane, last, 16)) for lane in range(16)))
