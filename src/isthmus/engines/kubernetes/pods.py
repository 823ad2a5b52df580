"""From a run to the pod and the Job that Kubernetes is given. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isthmus.engines.base import Run
from isthmus.errors import EngineRefused
from isthmus.resources.deviceclasses import KubernetesDevice

from . import wrapping
from .settings import KubernetesSettings

RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d{1,6}")
MANAGED = "app.kubernetes.io/managed-by"
RUN, SITE, BARRED = "isthmus.dev/run", "isthmus.dev/site", "isthmus.dev/barred"
CPUS, DEVICES = "isthmus.dev/milli-cpus", "isthmus.dev/devices"
FINAL, CANCELLED = "isthmus.dev/final", "isthmus.dev/cancelled"
TAKEN_OVER, FORGOTTEN = "isthmus.dev/taken-over", "isthmus.dev/forgotten"
NOBODY = "isthmus.dev-nobody"
"""A scheduler that does not exist: a pod that names it never runs."""
MAIN, ERRORS, FILES, STAGE = "main", "errors", "files", "stage"
LONGEST = 120_000
"""Bytes of one word: Linux takes no longer ones."""


def name_of(run_id: str) -> str:
    """What the pod and the Job of a run are called, for all time."""
    return f"isthmus-{run_id.replace('.', '-')}"


def labels_of(run_id: str, site: str) -> dict[str, str]:
    """What marks an object as this run's."""
    return {MANAGED: "isthmus", RUN: run_id, SITE: site}


def is_ours(obj: Mapping[str, Any], run_id: str, site: str) -> bool:
    """Whether an object that has the name of a run is the run's."""
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in labels_of(run_id, site).items())


def pod(
    run: Run,
    settings: KubernetesSettings,
    devices: Mapping[str, KubernetesDevice],
    *,
    stage: bool,
    taken_over: bool = False,
) -> dict[str, Any]:
    """The pod of a run: unprivileged, with nothing of the cluster's in it.

    `taken_over`: another control plane may have been about to create it, and may still be.
    """
    if run.python is not None:
        run = replace(run, python=run.python.of_site(settings.package_index, ""))
    uid = run.account.uid or settings.uid
    image = run.image or settings.image
    if uid == 0 or image is None:
        raise EngineRefused("A pod needs an image, and an account that is not root.")
    helpers = [_helper(ERRORS, wrapping.ERRORS, settings)] if run.separate_streams else []
    helpers += [_helper(FILES, wrapping.FILES, settings)] if run.keeps_files else []
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": wrapping.GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": uid,
            "fsGroup": uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_main(run, image, settings, devices), *helpers],
        "volumes": [{"name": name, "emptyDir": {}} for name in ("work", "control", "tmp")],
    }
    if stage:
        spec["initContainers"] = [_helper(STAGE, wrapping.STAGE, settings)]
    if run.time_limit is not None:
        # Only a last resort: the limit itself is held inside, to the second, and this also counts the way in and out.
        spec["activeDeadlineSeconds"] = int(run.time_limit) + 3600
    spec |= _wishes(run, settings, devices)
    labels = labels_of(run.id, settings.site) | {"isthmus.dev/tenant": run.namespace}
    notes = {"isthmus.dev/job": run.job, CPUS: str(run.milli_cpus)}
    notes[DEVICES] = ",".join(f"{name}={count}" for name, count in run.devices.items())
    if taken_over:
        notes[TAKEN_OVER] = "true"
    metadata = {"name": name_of(run.id), "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _wishes(run: Run, settings: KubernetesSettings, devices: Mapping[str, KubernetesDevice]) -> dict[str, Any]:
    selector = dict(settings.node_selector)
    for name in run.devices:
        selector |= devices[name].node_labels
    spec: dict[str, Any] = {"nodeSelector": selector} if selector else {}
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    if settings.runtime_class:
        spec["runtimeClassName"] = settings.runtime_class
    fitting = [level for level in settings.priority_classes if level <= run.priority]
    if fitting:
        spec["priorityClassName"] = settings.priority_classes[max(fitting)]
    return spec


def _main(
    run: Run, image: str, settings: KubernetesSettings, devices: Mapping[str, KubernetesDevice]
) -> dict[str, Any]:
    env = wrapping.environment(run, run.devices, name_of(run.id))
    words = ["separate" if run.separate_streams else "merged"]
    words += [f"{run.time_limit:g}" if run.time_limit is not None else "", run.script or ""]
    words += [run.stdin or "/dev/null", run.working_dir or ".", *wrapping.words(run)]
    if any(len(word.encode()) > LONGEST for word in (*words, *env.values())):
        raise EngineRefused(f"A script, a word or a variable is longer than {LONGEST} bytes; send it along as a file.")
    amounts: dict[str, Any] = {"cpu": f"{run.milli_cpus}m"}
    if run.memory_bytes:
        amounts["memory"] = str(run.memory_bytes)
    for name, count in run.devices.items():
        if resource := devices[name].resource:
            amounts[resource] = str(count)
    return _container(MAIN, image, settings) | {
        "command": ["/bin/sh", "-c", _literal(wrapping.MAIN), "isthmus"],
        "args": [_literal(word) for word in words],
        "env": [{"name": name, "value": _literal(value)} for name, value in env.items()],
        "workingDir": wrapping.WORK,
        "resources": {"requests": amounts, "limits": amounts},
    }


def _helper(name: str, script: str, settings: KubernetesSettings) -> dict[str, Any]:
    return _container(name, settings.helper, settings) | {
        "command": ["/bin/sh", "-c", _literal(script)],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
    }


def _container(name: str, image: str, settings: KubernetesSettings) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": wrapping.WORK},
            {"name": "control", "mountPath": wrapping.CONTROL},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
        ],
    }


def _literal(text: str) -> str:
    """Kubernetes replaces $(NAME) in words and variables, and a doubled $ by one."""
    return text.replace("$", "$$")


def job(run_id: str, settings: KubernetesSettings) -> dict[str, Any]:
    """The Job that adopts the pod. Its own template never runs: a pod that is lost has no successor."""
    labels = labels_of(run_id, settings.site)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(run_id), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "manualSelector": True,
            "selector": {"matchLabels": labels},
            "template": _inert(labels, settings),
        },
    }


def bar(run_id: str, settings: KubernetesSettings) -> dict[str, Any]:
    """A pod that never runs, and keeps the name of a run from being used."""
    labels = labels_of(run_id, settings.site) | {BARRED: "true"}
    inert = _inert(labels, settings)
    inert["metadata"]["name"] = name_of(run_id)
    return {"apiVersion": "v1", "kind": "Pod", **inert}


def _inert(labels: Mapping[str, str], settings: KubernetesSettings) -> dict[str, Any]:
    container = _helper(MAIN, "exit 1", settings)
    spec = {
        "restartPolicy": "Never",
        "schedulerName": NOBODY,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": name, "emptyDir": {}} for name in ("work", "control", "tmp")],
    }
    return {"metadata": {"labels": dict(labels)}, "spec": spec}
