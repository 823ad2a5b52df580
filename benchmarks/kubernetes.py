"""Kubernetes: as a site, how much longer a job takes to run than with kubectl and how often the cluster is asked.

Real Kubernetes, from the lab, with one node. Baseline: `kubectl create` of a Job with the same image and command. Ours
is what a user types too: `isthmus run --detach`, through a whole control plane. Both are measured from before the
command is started until the pod is seen to run, by the same look at the same list of pods. The store is in
`kubernetes_store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from isthmus.engines.base import Run, RunState
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.lab.kubernetes.registering import manifests
from isthmus.testing.engines import new_run_id, until
from isthmus.testing.kubernetes_store import settled
from isthmus.testing.servers import GROUP, ServerProcess, eventually, running_server

from . import kubernetes_store
from .report import Figure, Section

WAVE = 100
_SHARED = re.compile(r"^WATCH|^GET (?!pods/log)|leases|namespaces|roles|rolebindings|resourcequotas")
BURST_SECONDS = 900.0
"""No further wave of jobs is begun after so long."""
SITE = "bench"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: isthmus}}
spec:
  backoffLimit: 0
  template:
    metadata: {{labels: {{bench: {name}}}}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
        - {{name: main, image: "{image}", command: [sleep, "1000"], resources: {{limits: {{cpu: 500m}}}}}}
"""


def run(seconds: int, jobs: int = 1000, objects: int = 10_000) -> Section:
    section = Section(
        "Kubernetes",
        "The lab's Kubernetes 1.20 with one node beside everything else on this machine. As a site: `isthmus run "
        "--detach` in turns with `kubectl create` of an equivalent Job, each from the command to the pod seen running; "
        "requests are all that the engine makes: creating, logs, writing down the end, removing. As the store "
        "(`--store kubernetes`, jobs at the local site): requests as the API server counts them.",
    )
    with _lab() as lab, tempfile.TemporaryDirectory() as folder:
        with running_server(Path(folder) / "data") as server:
            _register(server, lab)
            section.add(_submission(lab, server, times=max(5, seconds)))
        section.add(asyncio.run(_burst(lab, Path(folder) / "engine", jobs)))
        section.add(_both(lab, Path(folder) / "store", WAVE))
    kubernetes_store.measure(section, jobs=jobs, watched=objects // 2, held=objects)
    return section


def _register(server: ServerProcess, lab: KubernetesLab) -> None:
    plurals = {"Site": "sites", "DeviceClass": "deviceclasses"}
    for obj in manifests(lab.place.site_kubeconfig, SITE):
        server.request(f"{GROUP}/{plurals[obj['kind']]}", obj)
    eventually(lambda: server.request(f"{GROUP}/sites/{SITE}")["status"].get("phase") == "Ready", timeout=120)


@contextlib.contextmanager
def _lab() -> Iterator[KubernetesLab]:
    folder = Path(tempfile.mkdtemp(prefix="isk-"))
    lab = KubernetesLab(folder / "lab")
    try:
        lab.up(1)
        yield lab
    finally:
        lab.down(erase=True)
        shutil.rmtree(folder)


def _submission(lab: KubernetesLab, server: ServerProcess, *, times: int) -> Figure:
    ours, theirs = [], []
    for number in range(times):
        theirs.append(_kubectl(lab, f"bench-{number}"))
        ours.append(_isthmus(lab, server, f"bench-{number}"))
    mine, base = statistics.median(ours), statistics.median(theirs)
    reported = f"`kubectl create`: {base:.2f} s"
    figure = Figure(
        "as site, submission to pod running, median", f"{mine:.2f} s", reported, mine / base, "at most 1.15"
    )
    figure.met = mine <= 1.15 * base
    return figure


def _kubectl(lab: KubernetesLab, name: str) -> float:
    begin = time.monotonic()
    words = ["kubectl", f"--kubeconfig={lab.place.kubeconfig}", "create", "-f", "-"]
    subprocess.run(words, input=JOB.format(name=name, image=IMAGE), text=True, check=True, stdout=subprocess.DEVNULL)
    took = _running(lab, f"bench%3D{name}") - begin
    lab.asker.ask(f"/apis/batch/v1/namespaces/isthmus/jobs/{name}?propagationPolicy=Background", method="DELETE")
    _gone(lab, f"bench%3D{name}")
    return took


def _isthmus(lab: KubernetesLab, server: ServerProcess, name: str) -> float:
    begin = time.monotonic()
    words = ["run", "--detach", "--quiet", "--no-files", "--site", SITE, "--name", name, "--cpus", "500m"]
    environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    command = [sys.executable, "-m", "isthmus.cli", *words, "--", "sleep", "1000"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    took = _running(lab, "isthmus.dev/run") - begin
    server.request(f"{server.jobs()}/{name}", method="DELETE")
    _gone(lab, "isthmus.dev/run")
    return took


def _running(lab: KubernetesLab, selector: str) -> float:
    """When a pod was seen to run."""
    path = f"/api/v1/namespaces/isthmus/pods?labelSelector={selector}"
    while not any(pod["status"]["phase"] == "Running" for pod in lab.asker.ask(path)["items"]):
        time.sleep(0.02)
    return time.monotonic()


def _gone(lab: KubernetesLab, selector: str) -> None:
    """The node must not be busy with the last one."""
    while lab.asker.ask(f"/api/v1/namespaces/isthmus/pods?labelSelector={selector}")["items"]:
        time.sleep(0.1)


async def _burst(lab: KubernetesLab, folder: Path, count: int) -> Figure:
    """Many short jobs, a wave at a time; as many waves as there is time for."""
    engine = KubernetesEngine(
        KubernetesSettings(
            folder=folder, site=SITE, kubeconfig=lab.place.site_kubeconfig, image=IMAGE, helper_image=IMAGE
        )
    )
    await engine.open()
    begin, done, spent = time.monotonic(), 0, Counter[str]()
    spent.subtract(engine.client.asked)
    try:
        while done < count and time.monotonic() - begin < BURST_SECONDS:
            wave = min(WAVE, count - done)
            await asyncio.gather(*(_one(engine) for _ in range(wave)))
            done += wave
        spent.update(engine.client.asked)
    finally:
        await engine.close()
    each, took = sum(spent.values()) / done, time.monotonic() - begin
    measured = f"{each:.1f}: {kubernetes_store.reported(spent, done)} ({took:.0f} s in all)"
    cut = "" if done == count else f" (of {count}: no time for more)"
    figure = Figure(f"as site, {done} jobs{cut}: API requests for each", measured, target="below 8")
    figure.met = each < 8
    return figure


def _both(lab: KubernetesLab, folder: Path, jobs: int) -> Figure:
    """One cluster as store and as site: what the control plane says that it asked, in all, for each job."""
    asyncio.run(settled(lab.place.kubeconfig))
    server = ServerProcess(folder, store=f"kubernetes:{lab.place.kubeconfig}")
    server.start()
    try:
        _register(server, lab)
        kubernetes_store.settle(lambda: _asked(server))
        before = _asked(server)
        for number in range(jobs):
            server.submit(f"both-{number}", "true", resources={"cpus": "10m"}, placement={"sites": [SITE]})
        for number in range(jobs):
            server.finished(f"both-{number}", timeout=1800)
        kubernetes_store.settle(lambda: _asked(server))
        spent = _asked(server)
    finally:
        server.stop()
    spent.subtract(before)
    store = sum(count for what, count in spent.items() if "isthmus.dev" in what or "events" in what) / jobs
    each = sum(spent.values()) / jobs
    measured = f"{each:.1f}, of them {store:.1f} for the store: {kubernetes_store.reported(spent, jobs)}"
    return Figure(f"as store and site at once, {jobs} jobs: API requests for each", measured)


def _asked(server: ServerProcess) -> Counter[str]:
    """How often a control plane asked what, so far; without what does not belong to single jobs."""
    text = str(server.request("/metrics"), "utf-8")
    found = re.findall(r'^isthmus_kubernetes_requests_total\{what="([^"]*)"\} ([0-9.e+]+)$', text, re.M)
    return Counter({what: int(float(value)) for what, value in found if not _SHARED.search(what)})


async def _one(engine: KubernetesEngine) -> None:
    wanted = Run(new_run_id(), "bench", "b", command=("true",), milli_cpus=100, keeps_files=False)
    await engine.submit(wanted)

    async def ended() -> bool:
        seen = await engine.observe(wanted.id)
        return seen is not None and seen.state is RunState.ENDED

    await until(ended, "the end", 1800)
    await engine.tidy(wanted.id)
    await engine.forget(wanted.id)
