"""A run is carried out exactly once: over crashes, lost replies, races, and names that are taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import SIGNAL, VARIABLE
from isthmus.engines.base import EndReason, Run, RunState, Stream
from isthmus.engines.kubernetes import pods
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.engines.kubernetes.tombstones import KEPT
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.testing.engines import new_run_id, until, wait_ended, wait_log_has, whole_log

from .conftest import MakeEngine

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.anyio]
PODS, JOBS = "/api/v1/namespaces/isthmus/pods", "/apis/batch/v1/namespaces/isthmus/jobs"


def run_of(script: str, **fields: Any) -> Run:
    fields.setdefault("keeps_files", False)
    return Run(fields.pop("id", None) or new_run_id(), "t", "once", command=("/bin/sh", "-c", script), **fields)


def pods_of(lab: KubernetesLab, run_id: str) -> list[Any]:
    found: list[Any] = lab.asker.ask(f"{PODS}?labelSelector={pods.RUN}%3D{run_id}")["items"]
    return found


@pytest.mark.parametrize("point", ["submit:begin", "submit:created", "submit:noted", "settle:copied", "settle:written"])
async def test_killed_between_any_two_steps(
    point: str, lab: KubernetesLab, settings: KubernetesSettings, make_engine: MakeEngine
) -> None:
    run_id = new_run_id()
    words = [sys.executable, str(Path(__file__).with_name("crashing.py")), str(settings.folder), settings.site]
    words += [str(settings.kubeconfig), IMAGE, run_id]
    died = subprocess.run(words, env={**os.environ, VARIABLE: point}, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    engine = await make_engine()
    await engine.submit(run_of("echo once", id=run_id))
    assert (await wait_ended(engine, run_id)).exit_code == 0
    assert await whole_log(engine, run_id) == b"once\n"
    assert len(pods_of(lab, run_id)) == 1

    async def adopted() -> bool:
        return bool(pods_of(lab, run_id)[0]["metadata"].get("ownerReferences"))

    await until(adopted, "the Job to adopt the pod")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_stopped_and_woken_up_when_the_run_is_forgotten(
    cancelled: bool, lab: KubernetesLab, settings: KubernetesSettings, make_engine: MakeEngine
) -> None:
    """The name stays taken: what it creates is there, and is over."""
    run = run_of("echo once", placed_here=False)
    words = [sys.executable, str(Path(__file__).with_name("crashing.py")), str(settings.folder), settings.site]
    words += [str(settings.kubeconfig), IMAGE, run.id]
    env = {**os.environ, VARIABLE: "submit:begin", SIGNAL: "SIGSTOP"}
    stopped = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    os.waitpid(stopped.pid, os.WUNTRACED)
    engine = await make_engine()
    if cancelled:
        await engine.cancel(run.id)
    else:
        await engine.submit(run)
    await wait_ended(engine, run.id)
    await engine.forget(run.id)
    assert await engine.observe(run.id) is None
    before = [pod["metadata"]["uid"] for pod in pods_of(lab, run.id)]
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(60) == 1
    assert [pod["metadata"]["uid"] for pod in pods_of(lab, run.id)] == before
    later = await make_engine()
    assert await later.observe(run.id) is None
    await later._tombstones.clear(utcnow() + KEPT * 2)

    async def gone() -> bool:
        return pods_of(lab, run.id) == []

    await until(gone, "the tombstone to go")


async def test_a_bar_of_a_run_that_nobody_forgot_goes_after_a_week(
    lab: KubernetesLab, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was deleted before it was sent: nothing but the bar is left of it."""
    run_id = new_run_id()
    first = await make_engine()
    await first.cancel(run_id)
    await first.probe([])
    assert [pod["metadata"]["name"] for pod in pods_of(lab, run_id)] == [pods.name_of(run_id)]
    later = await make_engine()
    monkeypatch.setattr("isthmus.engines.kubernetes.driver.utcnow", lambda: utcnow() + KEPT * 2)
    await later.probe([])
    assert pods_of(lab, run_id) == []
    assert await later.observe(run_id) is None


async def test_a_lost_reply_means_adopting(engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = engine.client.create, []

    async def lossy(path: str, obj: Any) -> Any:
        made = await real(path, obj)
        if obj["kind"] not in lost:
            lost.append(obj["kind"])
            raise SiteUnavailable("the reply was lost")
        return made

    monkeypatch.setattr(engine.client, "create", lossy)
    run = run_of("echo once")
    for _ in range(2):
        with pytest.raises(SiteUnavailable):
            await engine.submit(run)
    await engine.submit(run)
    assert lost == ["Pod", "Job"]
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert await whole_log(engine, run.id) == b"once\n"


async def test_two_control_planes_submit_at_once(make_engine: MakeEngine, lab: KubernetesLab, tmp_path: Path) -> None:
    first, second = await make_engine(), await make_engine(folder=tmp_path / "other")
    run = run_of("echo once")
    one, two = await first.submit(run), await second.submit(run)
    assert one.engine_id == two.engine_id
    assert (await wait_ended(first, run.id)).exit_code == 0
    assert (await wait_ended(second, run.id)).exit_code == 0
    assert await whole_log(second, run.id) == b"once\n"
    assert len(pods_of(lab, run.id)) == 1


async def test_a_site_that_is_open_twice_copies_a_log_once(make_engine: MakeEngine) -> None:
    """As a control plane has it that read logs before it began to lead."""
    first, second = await make_engine(), await make_engine()
    run = run_of("echo begun; sleep 4; echo over")
    await first.submit(run)
    for engine in (first, second):
        await wait_log_has(engine, run.id, b"begun\n")
    for engine in (first, second):
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"begun\nover\n"


async def test_a_control_plane_that_comes_later_has_the_log(make_engine: MakeEngine, tmp_path: Path) -> None:
    first = await make_engine()
    run = run_of("echo out; echo err >&2", separate_streams=True)
    await first.submit(run)
    await wait_ended(first, run.id)
    later = await make_engine(folder=tmp_path / "later")
    assert await whole_log(later, run.id) == b"out\n"
    assert await whole_log(later, run.id, Stream.STDERR) == b"err\n"


async def test_a_cancelled_run_that_is_still_on_its_way_does_not_begin(
    engine: KubernetesEngine, lab: KubernetesLab, make_engine: MakeEngine
) -> None:
    run = run_of("echo once")
    await engine.cancel(run.id)
    for asked in (engine, await make_engine()):
        seen = await asked.submit(run)
        assert (seen.state, seen.reason) == (RunState.ENDED, EndReason.CANCELLED)
    assert [pod["status"]["phase"] for pod in pods_of(lab, run.id)] == ["Pending"]


@pytest.mark.parametrize("kind", ["Pod", "Job"])
async def test_objects_of_others_are_never_touched(kind: str, engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = run_of("echo once")
    made = {"Pod": pods.bar, "Job": pods.job}[kind](run.id, engine._settings)
    labels = {"somebody": "else", "run": run.id}
    made["metadata"]["labels"] = labels
    if kind == "Job":
        made["spec"]["selector"] = {"matchLabels": labels}
        made["spec"]["template"]["metadata"]["labels"] = labels
    path = {"Pod": PODS, "Job": JOBS}[kind]
    before = lab.asker.ask(path, made)
    with pytest.raises(EngineRefused, match="is not ours"):
        await engine.submit(run)
    after = lab.asker.ask(f"{path}/{pods.name_of(run.id)}")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    lab.asker.ask(f"{path}/{pods.name_of(run.id)}?propagationPolicy=Background", method="DELETE")


async def test_a_pod_deleted_at_once_leaves_its_log(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    """Nobody reads the log, and the pod goes before it would have been followed."""
    run = run_of("echo once; exec sleep 1000")
    await engine.submit(run)

    async def printed() -> bool:
        found = pods_of(lab, run.id)
        return bool(found and found[0]["status"]["phase"] == "Running") and "once" in lab.asker.text(
            f"{PODS}/{pods.name_of(run.id)}/log"
        )

    await until(printed, "the pod to print")
    lab.asker.ask(f"{PODS}/{pods.name_of(run.id)}?gracePeriodSeconds=2", method="DELETE")
    assert (await wait_ended(engine, run.id)).reason is EndReason.NODE_LOST
    assert await whole_log(engine, run.id) == b"once\n"


async def test_a_pod_deleted_by_hand_has_no_successor(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = run_of("echo once; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"once\n")
    lab.asker.ask(f"{PODS}/{pods.name_of(run.id)}?gracePeriodSeconds=1", method="DELETE")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert "deleted at the cluster" in end.message
    assert await whole_log(engine, run.id) == b"once\n"

    async def nothing_runs() -> bool:
        return all(not pod["spec"].get("nodeName") for pod in pods_of(lab, run.id))

    await until(nothing_runs, "nothing of the run to be on a node")
    await engine.forget(run.id)

    async def nothing_left() -> bool:
        return pods_of(lab, run.id) == []

    await until(nothing_left, "nothing of the run to be left")
