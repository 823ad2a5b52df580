"""What goes wrong at a cluster, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.engines.base import EndReason, RunState
from isthmus.engines.kubernetes import pods
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.errors import EngineRefused, Expired, SiteUnavailable
from isthmus.kubernetes.client import KubernetesClient
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.testing.engines import until, wait_ended, wait_log_has, whole_log

from .conftest import AKIDA, MakeEngine
from .test_exactly_once import PODS, pods_of, run_of

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.anyio]


async def test_the_api_server_is_restarted(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = run_of("echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over; exit 3")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    lab.control.stop("kube-apiserver", kill=True)
    with pytest.raises(SiteUnavailable):
        await engine.probe([])
    with pytest.raises(SiteUnavailable):
        await engine.submit(run_of("echo lost"))
    seen = await engine.observe(run.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING, "what could not be asked is not gone"
    await asyncio.to_thread(lab.control.start_apiserver)
    await asyncio.to_thread(lab.control.start_controllers)

    async def reported() -> bool:
        try:
            await engine.cancel(run.id, grace=0)
        except SiteUnavailable:
            return False
        return True

    await until(reported, "the API server to be back")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.CANCELLED
    assert await whole_log(engine, run.id) == b"begun\n"


async def test_a_watch_that_is_too_old_lists_again(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = KubernetesClient.watch, 0

    async def old(*words: Any, **more: Any) -> AsyncIterator[tuple[str, Any]]:
        nonlocal times
        times += 1
        if times < 3:
            raise Expired("too old resource version")
        async for event in real(*words, **more):
            yield event

    monkeypatch.setattr(KubernetesClient, "watch", old)
    engine = await make_engine()
    run = run_of("echo once")
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert times >= 3


async def test_a_silent_watch_is_given_up(make_engine: MakeEngine) -> None:
    engine = await make_engine(watch_seconds=1)
    run = run_of("sleep 3; echo once")
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert await whole_log(engine, run.id) == b"once\n"


async def test_a_node_is_lost(make_engine: MakeEngine, lab: KubernetesLab) -> None:
    await asyncio.to_thread(lab.start_node, 3)
    name = lab.node(3).name
    other = await make_engine(node_selector={"kubernetes.io/hostname": name})
    run = run_of("echo begun; exec sleep 1000")
    await other.submit(run)
    await wait_log_has(other, run.id, b"begun\n")
    await asyncio.to_thread(lab.node(3).crash)

    async def down() -> bool:
        found = await other.probe([])
        return any(node.name == name and node.state == "Down" for node in found.nodes)

    await until(down, "the node to count as lost")
    seen = await other.observe(run.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING, "a node that does not answer may still work"
    await asyncio.to_thread(lab.remove_node, 3)
    # As an administrator does who knows that the node is gone; by itself Kubernetes does it a minute later.
    lab.asker.ask(f"{PODS}/{pods.name_of(run.id)}?gracePeriodSeconds=0", method="DELETE")
    end = await wait_ended(other, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert await whole_log(other, run.id) == b"begun\n"
    assert all(not pod["spec"].get("nodeName") for pod in pods_of(lab, run.id))


async def test_an_image_that_is_not_there(make_engine: MakeEngine) -> None:
    engine = await make_engine(pull_policy="Never")
    run = run_of("echo x", image="localhost/no-such-image:1")
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.START_FAILED
    assert "image" in end.message


async def test_an_image_that_cannot_be_pulled(make_engine: MakeEngine) -> None:
    engine = await make_engine(start_seconds=0.0)
    run = run_of("echo x", image="localhost:1/no-such-image:1")
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.START_FAILED
    assert "cannot be pulled" in end.message


async def test_a_device_is_given_and_counted(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    found = await engine.probe([AKIDA])
    assert found.capacity.devices == {"akida": 1}
    assert found.version == "Kubernetes v1.20.2"
    first = run_of("echo $ISTHMUS_DEVICES_AKIDA; exec sleep 1000", devices={"akida": 1})
    second = run_of("echo mine", devices={"akida": 1})
    await engine.submit(first)
    await wait_log_has(engine, first.id, b"1\n")
    await engine.submit(second)

    async def waits() -> bool:
        seen = await engine.observe(second.id)
        return seen is not None and "isthmus.dev/akida" in seen.message

    await until(waits, "the scheduler to say why it waits")
    await engine.cancel(first.id, grace=0)
    end = await wait_ended(engine, second.id)
    assert end.exit_code == 0
    assert end.usage is not None
    assert end.usage.energy_source == "estimated"
    with pytest.raises(EngineRefused, match="Device class"):
        engine.check(run_of("x", devices={"unknown": 1}))


async def test_pods_are_unprivileged(engine: KubernetesEngine) -> None:
    script = (
        "id -u; grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status; touch /x; ls /var/run/secrets; echo w >/work/w"
    )
    run = run_of(script)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    log = (await whole_log(engine, run.id)).decode()
    assert log.startswith("65534\n")
    assert "CapEff:\t0000000000000000" in log
    assert "NoNewPrivs:\t1" in log
    assert "Seccomp:\t2" in log
    assert "Read-only file system" in log
    assert "/var/run/secrets: No such file" in log


async def test_the_log_survives_the_pod(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = run_of("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    lab.asker.ask(f"{PODS}/{pods.name_of(run.id)}?gracePeriodSeconds=0", method="DELETE")

    async def gone() -> bool:
        return all(pod["metadata"]["name"] != pods.name_of(run.id) for pod in pods_of(lab, run.id))

    await until(gone, "the pod to be gone")
    log = await whole_log(engine, run.id)
    assert log == b"".join(b"line %d\n" % i for i in range(20000))
    assert (await engine.observe(run.id)) is not None


async def test_a_cancelled_run_leaves_nothing_behind(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    waiting = run_of("echo never", milli_cpus=900_000)
    await engine.submit(waiting)
    running = run_of("exec sleep 1000", keeps_files=True)
    await engine.submit(running)

    async def runs() -> bool:
        seen = await engine.observe(running.id)
        return seen is not None and seen.state is RunState.RUNNING

    await until(runs, "the run to begin")
    for run in (waiting, running):
        await engine.cancel(run.id, grace=0)
        assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED
        await engine.tidy(run.id)
        await engine.forget(run.id)

    async def nothing() -> bool:
        return not any(pods_of(lab, run.id) for run in (waiting, running))

    await until(nothing, "no pod to be left")
