"""From what Kubernetes says of a pod to facts, and from facts to an observation. Pure, tested on recorded answers."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.numbers import decimal, whole
from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.engines.metering import memory_in_use
from isthmus.images.manifests import is_digest

from . import pods

# Why a container waits that will never run, and why one waits that may yet.
HOPELESS = {
    "InvalidImageName": "the name of the image is not one",
    "ErrImageNeverPull": "the image is not on the node, and the site does not allow pulling it",
    "CreateContainerConfigError": "the container cannot be set up",
}
PULLING = {
    "ErrImagePull": "the image cannot be pulled",
    "ImagePullBackOff": "the image cannot be pulled",
    "RegistryUnavailable": "the registry of the image does not answer",
    "CreateContainerError": "the container cannot be made",
    "RunContainerError": "the container cannot be started",
}
EVICTED = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI", "TerminationByKubelet"})


@dataclass(frozen=True, slots=True)
class Container:
    """How one container is."""

    state: str = "waiting"
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    image: str | None = None
    """The digest of its image, once the node has it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What matters of a pod."""

    run_id: str
    name: str
    uid: str
    phase: str = "Pending"
    node: str = ""
    reason: str = ""
    message: str = ""
    waiting: str = ""
    """Why no node takes it, in the scheduler's words."""
    disrupted: str = ""
    """Why the cluster took it away, in one word; servers from 1.26 on say so."""
    created: str = ""
    deleting: bool = False
    barred: bool = False
    taken_over: bool = False
    """Another control plane may have been about to create it, and may still be."""
    inert: bool = False
    """Made by the Job after ours was lost; it never runs."""
    owned: bool = False
    """Whether its Job has adopted it."""
    names: tuple[str, ...] = ()
    """Of the containers it is to have."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    milli_cpus: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)

    @property
    def main(self) -> Container:
        """The container of the program."""
        return self.containers.get(pods.MAIN, Container())

    @property
    def over(self) -> bool:
        """Whether the program will not run any more."""
        return self.main.state == "terminated" or self.phase in ("Succeeded", "Failed")


def pod(obj: Mapping[str, Any]) -> Pod | None:
    """The facts of a pod; None if it is not one of a run."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or {}
    run_id = labels.get(pods.RUN, "")
    if not pods.RUN_ID.fullmatch(run_id):
        return None
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    scheduled: Mapping[str, Any] = conditions.get("PodScheduled") or {}
    disrupted: Mapping[str, Any] = conditions.get("DisruptionTarget") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    barred = pods.BARRED in labels
    notes = metadata.get("annotations") or {}
    words = [word.partition("=") for word in notes.get(pods.DEVICES, "").split(",")]
    return Pod(
        run_id=run_id,
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        phase=status.get("phase") or "Pending",
        node=spec.get("nodeName") or "",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        waiting=(scheduled.get("message") or "") if scheduled.get("status") == "False" else "",
        disrupted=(disrupted.get("reason") or "") if disrupted.get("status") == "True" else "",
        created=metadata.get("creationTimestamp") or "",
        deleting=bool(metadata.get("deletionTimestamp")),
        barred=barred,
        taken_over=pods.TAKEN_OVER in notes,
        inert=spec.get("schedulerName") == pods.NOBODY and not barred,
        owned=bool(metadata.get("ownerReferences")),
        names=tuple(entry["name"] for entry in spec.get("containers") or ()),
        containers={entry["name"]: _container(entry) for entry in statuses},
        milli_cpus=whole(notes.get(pods.CPUS, "")) or 0,
        devices={name: found for name, _, count in words if (found := whole(count)) is not None},
    )


def _container(entry: Mapping[str, Any]) -> Container:
    state = entry.get("state") or {}
    name = next(iter(state), "waiting")
    reported = state.get(name) or {}
    return Container(
        state=name,
        reason=reported.get("reason") or "",
        message=reported.get("message") or "",
        exit_code=reported.get("exitCode"),
        started_at=_time(reported.get("startedAt")),
        finished_at=_time(reported.get("finishedAt")),
        image=_digest(str(entry.get("imageID") or "")),
    )


def _digest(image_id: str) -> str | None:
    """Of `docker.io/library/python@sha256:…`. An id without a repository is of the config and names no image."""
    name, at, digest = image_id.rpartition("@")
    return digest if at and name and is_digest(digest) else None


def _time(text: str | None) -> datetime | None:
    # The year 1 stands for "never" in Go.
    return parse_timestamp(text) if text and not text.startswith("0001") else None


def stuck(seen: Pod) -> tuple[str, bool]:
    """Why the pod cannot start, in a sentence, and whether that is for good; empty if nothing is wrong."""
    for container in seen.containers.values():
        if container.state != "waiting":
            continue
        for table, final in ((HOPELESS, True), (PULLING, False)):
            if container.reason in table:
                reported = " ".join(container.message.split())
                return f"{table[container.reason]}: {reported or container.reason}", final
    return "", False


def going_on(seen: Pod | None, engine_id: str) -> Observation:
    """The observation of a run that has not ended."""
    if seen is None:
        return Observation(RunState.QUEUED, engine_id, message="sent to the cluster")
    if seen.main.state == "running" or seen.over:
        return Observation(RunState.RUNNING, engine_id, started_at=seen.main.started_at, image=seen.main.image)
    stage = seen.containers.get(pods.STAGE)
    if stage is not None and stage.state == "running":
        return Observation(RunState.QUEUED, engine_id, message="its files are being sent")
    return Observation(RunState.QUEUED, engine_id, message=stuck(seen)[0] or seen.waiting)


def report(text: str) -> dict[str, str]:
    """What the wrapper left at the end. The program can write there too: nothing in it need be true, or make sense."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def ended(seen: Pod, engine_id: str, *, cancelled: bool) -> Observation:
    """How a run ended whose pod is over, or was taken away."""
    main, reported = seen.main, report(seen.main.message)
    code = main.exit_code if main.state == "terminated" else None
    usage = _usage(main, reported)
    reason, message = _why(seen, reported, code, cancelled)
    name = _signal(code) if reason not in (EndReason.START_FAILED,) else None
    if main.state == "terminated" and main.reason == "StartError":
        code = 127
    return Observation(
        RunState.ENDED,
        engine_id,
        started_at=main.started_at,
        ended_at=main.finished_at,
        reason=reason,
        message=message,
        exit_code=None if name else code,
        signal=name,
        usage=usage,
    )


def _why(seen: Pod, reported: Mapping[str, str], code: int | None, cancelled: bool) -> tuple[EndReason, str]:
    main = seen.main
    if cancelled:
        return EndReason.CANCELLED, "" if main.started_at else "cancelled before it began"
    if "late" in reported:
        return EndReason.TIME_LIMIT, ""
    if "failed" in reported:
        return EndReason.START_FAILED, _shown(reported["failed"])
    if "missing" in reported:
        return EndReason.START_FAILED, f"{_shown(reported['missing'])} was not found in the image, or is not executable"
    if (main.reason == "OOMKilled" or reported.get("oom", "0") != "0") and code != 0:
        return EndReason.OUT_OF_MEMORY, ""
    if seen.reason == "Evicted" and "exceed" in seen.message and "limit" in seen.message:
        return EndReason.DISK_LIMIT, f"the cluster ended it: {seen.message}"
    if seen.reason in ("Evicted", "Preempting", "Preempted") or seen.disrupted in EVICTED:
        return EndReason.PREEMPTED, f"the cluster evicted it: {seen.message or seen.disrupted or seen.reason}"
    if seen.reason in ("NodeLost", "NodeAffinity", "Shutdown", "Terminated", "NodeShutdown"):
        return EndReason.NODE_LOST, f"node {seen.node} was lost: {seen.message or seen.reason}"
    if seen.reason == "DeadlineExceeded":
        return EndReason.TIME_LIMIT, ""
    if main.reason in ("StartError", "ContainerCannotRun"):
        return EndReason.START_FAILED, f"the image cannot be used: it needs /bin/sh ({' '.join(main.message.split())})"
    if seen.deleting and code != 0:
        return EndReason.NODE_LOST, "its pod was deleted at the cluster, and not by Isthmus"
    if main.state != "terminated" or main.reason == "ContainerStatusUnknown":
        return EndReason.NODE_LOST, seen.message or "the cluster does not know how its pod ended"
    if "code" not in reported and code == 137:
        return EndReason.SUPERVISOR_LOST, "its container was killed at the node; who did it is not known"
    return EndReason.COMPLETED, ""


def _usage(main: Container, reported: Mapping[str, str]) -> RunUsage | None:
    if main.state != "terminated":
        return None
    elapsed = None
    if main.started_at and main.finished_at:
        elapsed = (main.finished_at - main.started_at).total_seconds()
    if (start := _number(reported, "start")) is not None and (end := _number(reported, "end")) is not None:
        elapsed = max(0.0, end - start)
    cpu = _number(reported, "nanoseconds", 1e-9)
    cpu = _number(reported, "microseconds", 1e-6) if cpu is None else cpu
    peak, cache, shared = (whole(reported.get(name, "")) for name in ("peak", "cache", "shared"))
    return RunUsage(elapsed, cpu, memory_in_use(peak, max(0, (cache or 0) - (shared or 0))))


def _number(reported: Mapping[str, str], name: str, unit: float = 1.0) -> float | None:
    found = decimal(reported.get(name, ""))
    return None if found is None else found * unit


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:200])


def _signal(code: int | None) -> str | None:
    """A shell reports a signal by a code above 128."""
    if code is None or code <= 128:
        return None
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return None
