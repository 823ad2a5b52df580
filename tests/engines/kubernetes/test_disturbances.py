"""A line to the API server that is cut or silent, a server that is restarted or has no time; and what users are told.

Never: a run lost, or run twice.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from isthmus._kit.clock import utcnow
from isthmus.engines.base import EndReason, Run, RunState
from isthmus.engines.kubernetes import pods, settling
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.errors import SiteUnavailable
from isthmus.lab.kubernetes import manifests
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.testing.engines import until, wait_ended, wait_log_has, whole_log
from isthmus.testing.faulty_lines import FaultyLine

from .conftest import MakeEngine
from .test_exactly_once import PODS, pods_of, run_of

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.anyio, pytest.mark.timeout(300)]
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1beta1"


@pytest.fixture
async def line(lab: KubernetesLab) -> AsyncIterator[FaultyLine]:
    async with FaultyLine(lab.control.url) as made:
        yield made


async def persist(engine: KubernetesEngine, run: Run) -> None:
    """As a reconciler does: again, for as long as the site does not answer."""
    while True:
        try:
            await engine.submit(run)
            return
        except SiteUnavailable:
            await asyncio.sleep(0.1)


async def test_a_line_that_is_cut_and_falls_silent(
    line: FaultyLine, make_engine: MakeEngine, lab: KubernetesLab, tmp_path: Path
) -> None:
    kubeconfig = line.kubeconfig(lab.place.site_kubeconfig, tmp_path / "kubeconfig")
    engine = await make_engine(kubeconfig=kubeconfig, request_seconds=5.0, watch_seconds=3)
    run = run_of("echo begun; sleep 2; echo over; exit 3")
    for _ in range(3):
        line.cut()
        await persist(engine, run)
    await wait_log_has(engine, run.id, b"begun\n")
    line.hush()
    before = line.connections

    async def given_up() -> bool:
        return line.connections > before

    await until(given_up, "the silent watch to be given up")
    with pytest.raises(SiteUnavailable):
        await engine.probe([])
    seen = await engine.observe(run.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING, "what could not be asked is not gone"
    line.resume()
    assert (await wait_ended(engine, run.id)).exit_code == 3
    assert await whole_log(engine, run.id) == b"begun\nover\n"
    assert len(pods_of(lab, run.id)) == 1


async def test_the_server_restarts_under_load_and_forgets(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    """Runs are sent while it dies, while it is away and while it comes; the watch is told 410 when it is back."""
    runs = [run_of(f"echo {n}", milli_cpus=50) for n in range(6)]
    sent = [asyncio.create_task(persist(engine, run)) for run in runs[:3]]
    await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(lab.control.stop, "kube-apiserver", kill=True)
    sent += [asyncio.create_task(persist(engine, run)) for run in runs[3:]]
    await asyncio.to_thread(lab.control.compact)
    await asyncio.to_thread(lab.control.start_apiserver)
    await asyncio.to_thread(lab.control.start_controllers)
    await asyncio.gather(*sent)
    for n, run in enumerate(runs):
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == f"{n}\n".encode()
        assert len(pods_of(lab, run.id)) == 1


@pytest.fixture
def hardly_any_room(lab: KubernetesLab) -> Iterator[Callable[[], float]]:
    """The server's own priority and fairness gives our account little, and refuses what is more; tells how often."""
    kind = {"apiVersion": FLOWS.removeprefix("/apis/")}
    limited = {"assuredConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": limited}}
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rules = [{"subjects": [{"kind": "User", "user": {"name": manifests.USER}}], "resourceRules": [every]}]
    schema = {"priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 2, "rules": rules}
    lab.asker.ask(f"{FLOWS}/prioritylevelconfigurations", {**kind, "kind": "PriorityLevelConfiguration", **level})
    lab.asker.ask(f"{FLOWS}/flowschemas", {**kind, "kind": "FlowSchema", "metadata": level["metadata"], "spec": schema})

    def refused() -> float:
        said = lab.asker.text("/metrics")
        found = re.findall(r"^apiserver_flowcontrol_rejected_requests_total{.*narrow.*} (\S+)$", said, re.MULTILINE)
        return sum(map(float, found))

    yield refused
    for plural in ("flowschemas", "prioritylevelconfigurations"):
        lab.asker.ask(f"{FLOWS}/{plural}/narrow", method="DELETE")


async def test_a_server_that_has_no_time(
    hardly_any_room: Callable[[], float], engine: KubernetesEngine, lab: KubernetesLab
) -> None:
    async def throttled() -> bool:  # the server takes new rules to heart a moment later
        await asyncio.gather(*(engine.client.get(PODS) for _ in range(40)))
        return hardly_any_room() > 0

    await until(throttled, "the server to refuse some requests")
    runs = [run_of(f"echo {n}", milli_cpus=50) for n in range(4)]
    asked = asyncio.create_task(throttled())
    await asyncio.gather(*(engine.submit(run) for run in runs))
    await asked
    for n, run in enumerate(runs):
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == f"{n}\n".encode()
        assert len(pods_of(lab, run.id)) == 1


async def test_an_eviction_by_the_api(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = run_of("echo begun; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    name = pods.name_of(run.id)
    asked = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": "isthmus"}}
    lab.asker.ask(f"{PODS}/{name}/eviction", {**asked, "deleteOptions": {"gracePeriodSeconds": 1}})
    end = await wait_ended(engine, run.id)
    # Servers from 1.26 on say that it was an eviction; before, the pod is just deleted.
    assert end.reason in (EndReason.NODE_LOST, EndReason.PREEMPTED)
    assert "at the cluster" in end.message or "evicted" in end.message
    assert await whole_log(engine, run.id) == b"begun\n"


@pytest.fixture
def narrow(lab: KubernetesLab, settings: KubernetesSettings) -> KubernetesSettings:
    """A namespace where a container may write little."""
    name = f"narrow-{uuid.uuid4().hex[:8]}"
    for obj in manifests.grants(name):
        if obj["kind"] in ("Namespace", "Role", "RoleBinding"):
            lab.asker.create(manifests.PATHS[obj["kind"]].format(namespace=name), obj)
    limit = {"type": "Container", "default": {"ephemeral-storage": "4Mi"}}
    meta = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "little"}}
    lab.asker.ask(f"/api/v1/namespaces/{name}/limitranges", {**meta, "spec": {"limits": [limit]}})
    return replace(settings, namespace=name)


async def test_a_node_evicts_and_a_namespace_is_deleted(
    narrow: KubernetesSettings, make_engine: MakeEngine, lab: KubernetesLab
) -> None:
    engine = await make_engine(narrow)
    greedy = run_of("echo begun; dd if=/dev/zero of=big bs=1M count=64 2>/dev/null; exec sleep 1000")
    modest = run_of("echo begun; exec sleep 1000")

    async def taken() -> bool:
        try:
            for run in (greedy, modest):
                await engine.submit(run)
        except SiteUnavailable:  # the namespace has no service account yet
            return False
        return True

    await until(taken, "the new namespace to take pods")
    end = await wait_ended(engine, greedy.id)
    assert end.reason is EndReason.DISK_LIMIT
    assert "local storage usage exceeds" in end.message
    assert end.usage is not None
    assert end.usage.peak_memory_bytes, "by the samples: nobody in the pod could report"
    await wait_log_has(engine, modest.id, b"begun\n")
    lab.asker.ask(f"/api/v1/namespaces/{narrow.namespace}", method="DELETE")
    end = await wait_ended(engine, modest.id)
    assert end.reason is EndReason.NODE_LOST
    assert "deleted at the cluster" in end.message
    assert await whole_log(engine, modest.id) == b"begun\n"
    with pytest.raises(SiteUnavailable, match="namespace"):
        await engine.submit(run_of("echo never"))
    await engine.close()  # there is nothing left to be cleaned up


async def test_clocks_that_are_minutes_apart(
    engine: KubernetesEngine, lab: KubernetesLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours is behind the cluster's: no run ends before it began, and none is taken for late."""
    monkeypatch.setattr(settling, "utcnow", lambda: utcnow() - timedelta(minutes=7))
    run = run_of("echo begun; exec sleep 1000", time_limit=600.0)
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    lab.asker.ask(f"{PODS}/{pods.name_of(run.id)}?gracePeriodSeconds=1", method="DELETE")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.ended_at >= end.started_at
