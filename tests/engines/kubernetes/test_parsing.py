"""What a pod's status means, on answers as Kubernetes gives them; and what is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import Account, EndReason, Observation, Run, RunState, RunUsage
from isthmus.engines.kubernetes import inventories, parsing, pods, records, sampling
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.errors import (
    EngineRefused,
)
from isthmus.resources.deviceclasses import KubernetesDevice

RUN = "11111111-2222-3333-4444-555555555555.0"
SETTINGS = KubernetesSettings(folder=Path("/nowhere"), site="s", image="img")
TIMES = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z"}


def pod(state: dict[str, Any] | None = None, **status: Any) -> parsing.Pod:
    """A pod as the API server shows it."""
    listed = [{"name": "main", "state": state}] if state else []
    metadata: dict[str, Any] = {"name": pods.name_of(RUN), "uid": "u", "labels": pods.labels_of(RUN, "s")}
    if status.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    found = parsing.pod({"metadata": metadata, "spec": spec, "status": {"containerStatuses": listed, **status}})
    assert found is not None
    return found


def over(code: int, message: str = "", reason: str = "Error", **status: Any) -> parsing.Pod:
    reported = {"exitCode": code, "message": message, "reason": reason, **TIMES}
    return pod({"terminated": reported}, phase="Failed" if code else "Succeeded", **status)


@pytest.mark.parametrize(
    ("seen", "reason", "code", "signal", "word"),
    [
        (over(0, "code=0\nstart=1.0\nend=3.5\n"), EndReason.COMPLETED, 0, None, ""),
        (over(3, "code=3"), EndReason.COMPLETED, 3, None, ""),
        (over(139, "code=139"), EndReason.COMPLETED, None, "SIGSEGV", ""),
        (over(255, "code=255"), EndReason.COMPLETED, 255, None, ""),
        (over(137, "", "OOMKilled"), EndReason.OUT_OF_MEMORY, None, "SIGKILL", ""),
        (over(137, "code=137\noom=1"), EndReason.OUT_OF_MEMORY, None, "SIGKILL", ""),
        (over(0, "code=0\noom=1"), EndReason.COMPLETED, 0, None, ""),
        (over(143, "code=143\nlate=1"), EndReason.TIME_LIMIT, None, "SIGTERM", ""),
        (over(127, "code=127\nmissing=prog"), EndReason.START_FAILED, 127, None, "prog"),
        (over(128, "exec: no sh", "StartError"), EndReason.START_FAILED, 127, None, "/bin/sh"),
        (over(143, "code=143", deleting=True), EndReason.NODE_LOST, None, "SIGTERM", "deleted"),
        (over(0, "code=0", deleting=True), EndReason.COMPLETED, 0, None, ""),
        (over(137), EndReason.SUPERVISOR_LOST, None, "SIGKILL", "killed"),
        (pod(phase="Failed", reason="Evicted", message="low on memory"), EndReason.PREEMPTED, None, None, "low on"),
        (
            pod(phase="Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit"),
            EndReason.DISK_LIMIT,
            None,
            None,
            "ephemeral",
        ),
        (
            over(
                143,
                "code=143",
                deleting=True,
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
            ),
            EndReason.PREEMPTED,
            None,
            "SIGTERM",
            "PreemptionByScheduler",
        ),
        (pod(phase="Failed", reason="NodeLost"), EndReason.NODE_LOST, None, None, "n1"),
        (pod(phase="Failed", reason="DeadlineExceeded"), EndReason.TIME_LIMIT, None, None, ""),
        (pod(phase="Failed"), EndReason.NODE_LOST, None, None, "does not know"),
    ],
)
def test_ends(seen: parsing.Pod, reason: EndReason, code: int | None, signal: str | None, word: str) -> None:
    assert seen.over
    end = parsing.ended(seen, "id", cancelled=False)
    assert (end.reason, end.exit_code, end.signal) == (reason, code, signal)
    assert word in end.message
    assert parsing.ended(seen, "id", cancelled=True).reason is EndReason.CANCELLED


def test_usage_is_what_the_pod_reported() -> None:
    end = parsing.ended(over(0, "code=0\nstart=1.5\nend=4.0\npeak=4096\nnanoseconds=2500000000"), "", cancelled=False)
    assert end.usage == RunUsage(2.5, 2.5, 4096)
    cached = "code=0\npeak=4096\ncache=3000\nshared=1000"
    end = parsing.ended(over(0, cached), "", cancelled=False)
    assert end.usage is not None
    assert end.usage.peak_memory_bytes == 2096, "files that the kernel keeps are not its memory, shared memory is"
    end = parsing.ended(over(0, "code=0\nstart=x\nmicroseconds=1000000"), "", cancelled=False)
    assert end.usage == RunUsage(9.0, 1.0, None)


@pytest.mark.parametrize(
    ("seen", "state", "word"),
    [
        (pod(), RunState.QUEUED, ""),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu"}]),
            RunState.QUEUED,
            "Insufficient cpu",
        ),
        (pod({"running": {"startedAt": TIMES["startedAt"]}}, phase="Running"), RunState.RUNNING, ""),
        (pod({"waiting": {"reason": "ImagePullBackOff", "message": "no such"}}), RunState.QUEUED, "cannot be pulled"),
        (pod({"waiting": {"reason": "ContainerCreating"}}), RunState.QUEUED, ""),
    ],
)
def test_on_the_way(seen: parsing.Pod, state: RunState, word: str) -> None:
    found = parsing.going_on(seen, "id")
    assert found.state is state
    assert word in found.message


def test_what_will_never_start() -> None:
    assert parsing.stuck(pod({"waiting": {"reason": "InvalidImageName"}}))[1] is True
    assert parsing.stuck(pod({"waiting": {"reason": "ErrImagePull"}}))[1] is False
    assert parsing.stuck(pod({"waiting": {"reason": "PodInitializing"}})) == ("", False)


def test_pods_of_others_are_no_runs() -> None:
    assert parsing.pod({"metadata": {"name": "x"}}) is None
    assert parsing.pod({"metadata": {"name": "x", "labels": {pods.RUN: "../../etc"}}}) is None


def test_records_come_back_as_they_were() -> None:
    final = parsing.ended(over(3, "code=3\nstart=1\nend=2"), "ns/name", cancelled=False)
    assert records.load(records.dump(final)) == final
    assert records.load(records.dump(Observation(RunState.ENDED))) == Observation(RunState.ENDED)


def test_words_and_variables_are_left_alone() -> None:
    run = Run(RUN, "t", "j", command=("echo", "$(HOME)", "$$", "$X"), env={"A": "$(ISTHMUS_JOB)"})
    main = pods.pod(run, SETTINGS, {}, stage=False)["spec"]["containers"][0]
    assert main["args"][-4:] == ["echo", "$$(HOME)", "$$$$", "$$X"]
    assert {"name": "A", "value": "$$(ISTHMUS_JOB)"} in main["env"]


def test_the_pod_has_what_was_asked_for_and_no_more() -> None:
    settings = KubernetesSettings(
        folder=Path("/nowhere"), site="s", image="img", priority_classes={0: "low", 100: "high"}, runtime_class="kata",
        node_selector={"pool": "batch"}, pull_secrets=("registry",),
    )  # fmt: skip
    devices = {"gpu": KubernetesDevice(resource="nvidia.com/gpu", node_labels={"gpu": "a100"})}
    run = Run(
        RUN, "t", "j", command=("x",), devices={"gpu": 2}, priority=150, milli_cpus=1500, memory_bytes=2**20,
        account=Account(uid=4711), keeps_files=False, time_limit=90,
    )  # fmt: skip
    spec = pods.pod(run, settings, devices, stage=True)["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1500m", "memory": "1048576", "nvidia.com/gpu": "2"}
    assert spec["nodeSelector"] == {"pool": "batch", "gpu": "a100"}
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "kata")
    assert spec["securityContext"]["runAsUser"] == 4711
    assert spec["automountServiceAccountToken"] is False
    assert [c["name"] for c in spec["initContainers"] + spec["containers"]] == ["stage", "main"]
    for container in spec["initContainers"] + spec["containers"]:
        context = container["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}
    with pytest.raises(EngineRefused, match="send it along"):
        pods.pod(Run(RUN, "t", "j", script="x" * 200_000), settings, devices, stage=False)


def test_an_inventory_counts_what_takes_pods() -> None:
    def node(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
        status = {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "1930m", "memory": "1024Ki", "nvidia.com/gpu": "4"},
        }
        return {"metadata": {"name": name, "labels": {"board": "akida"}}, "spec": spec, "status": status}

    devices = {
        "gpu": KubernetesDevice(resource="nvidia.com/gpu"),
        "akida": KubernetesDevice(node_labels={"board": "akida"}),
    }
    nodes = [node("a"), node("b", "Unknown"), node("c", unschedulable=True)]
    found = inventories.inventory({"gitVersion": "v1.30.1"}, nodes, devices)
    assert [(n.name, n.state) for n in found.nodes] == [("a", "Ready"), ("b", "Down"), ("c", "Drained")]
    assert (found.capacity.cpus, found.capacity.memory_bytes) == (1.93, 2**20)
    assert found.capacity.devices == {"gpu": 4, "akida": 1}
    assert inventories.version_of({"major": "1", "minor": "30+"}) == (1, 30)


def test_what_pods_use_as_nodes_and_the_metrics_api_tell() -> None:
    at, main = "2026-01-01T00:00:00Z", {"name": "main"}
    cpu, memory = {"time": at, "usageCoreNanoSeconds": 1_500_000_000}, {"time": at, "workingSetBytes": 4096}
    ours = {"podRef": {"name": "a", "namespace": "n"}, "containers": [{**main, "cpu": cpu, "memory": memory}]}
    theirs = {"podRef": {"name": "b", "namespace": "other"}, "containers": [{**main, "cpu": cpu}]}
    silent = {"podRef": {"name": "c", "namespace": "n"}, "containers": [main, {"name": "files"}]}
    (name, seen), *rest = sampling.from_node({"pods": [ours, theirs, silent]}, "n")
    assert (name, seen.cpu_seconds, seen.memory_bytes, rest) == ("a", 1.5, 4096, [])
    for cpus, amount in (("250m", 0.25), ("1500000n", 0.0015), ("2", 2.0)):
        used = [{**main, "usage": {"cpu": cpus, "memory": "12Ki"}}, {"name": "files", "usage": {}}]
        item = {"metadata": {"name": "a"}, "timestamp": at, "window": "30s", "containers": used}
        [(name, seen)] = sampling.from_metrics({"items": [item]})
        assert (name, seen.memory_bytes) == ("a", 12 * 1024)
        assert seen.cpus == pytest.approx(amount)
    later = sampling.Sampled(seen.at.timestamp() - 10, 5.0, 1)
    assert sampling._cpu_seconds(seen, later, 0.0) == pytest.approx(25.0)
    assert sampling._cpu_seconds(seen, None, seen.at.timestamp() - 3) == pytest.approx(6.0)


def test_what_others_ask_for_is_added_up() -> None:
    def asks(**requests: str) -> dict[str, Any]:
        return {"resources": {"requests": requests}}

    devices = {"gpu": KubernetesDevice(resource="x/gpu"), "rack": KubernetesDevice(nodeLabels={"a": "b"})}
    two = {"containers": [asks(cpu="500m", memory="1Gi"), asks(cpu="1"), {}], "initContainers": [asks(cpu="250m")]}
    odd = {"containers": [asks(cpu="100000u", memory="128Mi", **{"x/gpu": "2"})], "initContainers": [asks(cpu="2")]}
    found = inventories.requested([{"spec": two}, {"spec": odd}], devices)
    assert (found.cpus, found.memory_bytes, found.devices) == (3.5, 2**30 + 2**27, {"gpu": 2})
    assert inventories.requested([], devices).cpus == 0
