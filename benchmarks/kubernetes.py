"""A Kubernetes site: how much longer a job takes to run than with kubectl, and how often the cluster is asked.

Real Kubernetes, from the lab, with one node. Baseline: `kubectl create` of a Job with the same image and command, by a
shell that does nothing else. Times are what the kubelet says: from the submission to the container's start (whole
seconds in Kubernetes, hence from this side: until the pod is seen to run).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from isthmus.engines.base import Run, RunState
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.testing.engines import new_run_id, until, wait_ended

from .report import Figure, Section

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


def run(seconds: int) -> Section:
    section = Section(
        "A Kubernetes site",
        "The lab's Kubernetes 1.20 with one node beside everything else on this machine, in turns with `kubectl "
        "create` of an equivalent Job. Requests are all that the engine makes: creating, watching, logs, removing.",
    )
    with _lab() as lab, tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(section, lab, Path(folder), times=max(5, seconds * 2), burst=max(20, seconds * 20)))
    return section


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


async def _measure(section: Section, lab: KubernetesLab, folder: Path, *, times: int, burst: int) -> None:
    engine = KubernetesEngine(
        KubernetesSettings(
            folder=folder, site="bench", kubeconfig=lab.place.site_kubeconfig, image=IMAGE, helper_image=IMAGE
        )
    )
    await engine.open()
    try:
        ours, theirs = [], []
        for number in range(times):
            theirs.append(await asyncio.to_thread(_kubectl, lab, f"bench-{number}"))
            ours.append(await _one(engine))
        mine, base = statistics.median(ours), statistics.median(theirs)
        base_told = f"`kubectl create`: {base:.2f} s"
        told = Figure("submission to pod running, median", f"{mine:.2f} s", base_told, mine / base, "at most 1.15")
        told.met = mine <= 1.15 * base
        each, took = await _burst(engine, burst)
        asked = Figure(f"{burst} jobs: API requests for each", f"{each:.1f} ({took:.0f} s in all)", target="below 8")
        asked.met = each < 8
        section.figures += [told, asked]
    finally:
        await engine.close()


def _kubectl(lab: KubernetesLab, name: str) -> float:
    words = ["kubectl", f"--kubeconfig={lab.place.kubeconfig}"]
    begin = time.monotonic()
    subprocess.run([*words, "create", "-f", "-"], input=JOB.format(name=name, image=IMAGE), text=True, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    path = f"/api/v1/namespaces/isthmus/pods?labelSelector=bench%3D{name}"
    while not any(pod["status"]["phase"] == "Running" for pod in lab.asker.ask(path)["items"]):
        time.sleep(0.02)
    took = time.monotonic() - begin
    lab.asker.ask(f"/apis/batch/v1/namespaces/isthmus/jobs/{name}?propagationPolicy=Background", method="DELETE")
    while lab.asker.ask(path)["items"]:  # the node must not be busy with the last one
        time.sleep(0.1)
    return took


async def _one(engine: KubernetesEngine) -> float:
    wanted = Run(new_run_id(), "bench", "one", command=("sleep", "1000"), milli_cpus=500, keeps_files=False)
    begin = time.monotonic()
    await engine.submit(wanted)

    async def runs() -> bool:
        seen = await engine.observe(wanted.id)
        return seen is not None and seen.state is RunState.RUNNING

    await until(runs, "the pod to run")
    took = time.monotonic() - begin
    await engine.cancel(wanted.id, grace=0)
    await wait_ended(engine, wanted.id)
    await engine.forget(wanted.id)
    return took


async def _burst(engine: KubernetesEngine, count: int) -> tuple[float, float]:
    before, begin = engine.client.requests, time.monotonic()
    runs = [Run(new_run_id(), "bench", "b", command=("true",), milli_cpus=100, keeps_files=False) for _ in range(count)]
    await asyncio.gather(*(engine.submit(wanted) for wanted in runs))
    for wanted in runs:
        await until(lambda run_id=wanted.id: _ended(engine, run_id), "the end", 1800)  # type: ignore[misc]
        await engine.tidy(wanted.id)
        await engine.forget(wanted.id)
    return (engine.client.requests - before) / count, time.monotonic() - begin


async def _ended(engine: KubernetesEngine, run_id: str) -> bool:
    seen = await engine.observe(run_id)
    return seen is not None and seen.state is RunState.ENDED
