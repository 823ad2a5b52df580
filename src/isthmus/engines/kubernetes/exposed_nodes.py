"""From a site's nodes to the Node objects that show them, and what must change in those that are there. Pure.

A Node of ours carries the site's identity in a label; others are never looked at. It is not for pods: it has taints of
ours that evict and keep away, and room for no pod at all, so that even those who tolerate every taint find no place.
Only what we put there is compared and written: labels, taints and conditions of others stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from isthmus._kit.quantities import parse_bytes
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.meta import LABEL_VALUE_PATTERN, NAME_PATTERN
from isthmus.resources.sites import SiteNode

from .pods import MANAGED, SITE

Object = dict[str, Any]

TAINT = "isthmus.dev/slurm"
PROVIDER = "isthmus"
SLURM_NAME = "isthmus.dev/slurm-node"
OURS = re.compile(r"^(?:[a-z-]+\.)?isthmus\.dev/|^node-role\.kubernetes\.io/slurm$")
"""Labels that are made here, and removed when they are not wanted any more."""
_LABEL = re.compile(LABEL_VALUE_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_KUBELETS = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure"})
"""Conditions that Kubernetes adds by itself, as unknown, to a Node whose heartbeats stopped. We never report them."""
_ASLEEP = frozenset({"PoweredDown", "Powering"})


@dataclass(frozen=True, slots=True)
class Exposed:
    """The site whose nodes are shown."""

    site: str
    identity: str
    version: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What marks an object as this site's."""
        return {MANAGED: "isthmus", SITE: self.identity}

    @property
    def selector(self) -> str:
        """The same, as a question."""
        return ",".join(f"{key}={value}" for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What is to be merged into a Node; None where nothing is."""

    name: str
    main: Object | None = None
    status: Object | None = None


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What makes the cluster show what it should."""

    create: list[Object] = field(default_factory=list)
    change: list[NodeChange] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def plan(
    exposed: Exposed,
    nodes: Sequence[SiteNode],
    classes: Sequence[DeviceClass],
    present: Sequence[Mapping[str, Any]],
    now: datetime,
) -> NodePlan:
    """Compare what the site has with what the cluster shows of it."""
    made = NodePlan()
    have = {obj["metadata"]["name"]: obj for obj in present}
    taken: dict[str, str] = {}
    for node in nodes:
        name = name_of(node.name)
        if name is None:
            made.refused.append(f"{node.name}: cannot be the name of a Node; use letters, digits, - and .")
            continue
        if name in taken:
            made.refused.append(f"{node.name}: as a Node it would be called {name}, as {taken[name]} is; rename one")
            continue
        taken[name] = node.name
        wanted = node_object(exposed, name, node, classes, now)
        if name not in have:
            made.create.append(wanted)
        elif not have[name]["metadata"].get("deletionTimestamp"):
            change = difference(have[name], wanted)
            made.change.extend([change] if change.main or change.status else [])
    made.delete.extend(dict(obj) for name, obj in have.items() if name not in taken)
    return made


def name_of(node: str) -> str | None:
    """What a Slurm node is called in Kubernetes, which knows no capitals and no underscores."""
    name = node.lower().replace("_", "-")
    return name if _NAME.search(name) and len(name) <= 63 else None


def node_object(exposed: Exposed, name: str, node: SiteNode, classes: Sequence[DeviceClass], now: datetime) -> Object:
    """The whole Node, as it is created."""
    amounts = capacity(node, classes)
    ready = {**ready_condition(node), "lastHeartbeatTime": moment(now), "lastTransitionTime": moment(now)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels(exposed, name, node),
            "annotations": {SLURM_NAME: f"{exposed.site}/{node.name}"},
        },
        "spec": {
            "providerID": f"{PROVIDER}://{exposed.identity}/{node.name}",
            "taints": [{"key": TAINT, "effect": effect} for effect in ("NoSchedule", "NoExecute")],
            "unschedulable": "DRAIN" in node.states,
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": node.name}],
            "nodeInfo": _info(exposed.version),
        },
    }


def labels(exposed: Exposed, name: str, node: SiteNode) -> dict[str, str]:
    """Whose it is, what it is called, and its features and partitions."""
    found = {
        **exposed.labels,
        "isthmus.dev/site-name": exposed.site,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/slurm": "",
        # Who balances load over all nodes of a cluster must leave these out.
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    }
    found |= {f"feature.isthmus.dev/{word}": "true" for word in node.features if _LABEL.search(word)}
    found |= {f"partition.isthmus.dev/{word}": "true" for word in node.queues if _LABEL.search(word)}
    return {key: value for key, value in found.items() if _LABEL.search(value) and not key.endswith("/")}


def capacity(node: SiteNode, classes: Sequence[DeviceClass]) -> dict[str, str]:
    """Cpus, memory and devices, and room for no pods. A GRES that a class names is what that class calls it."""
    amounts = {"cpu": str(int(node.cpus)), "memory": f"{node.memory_bytes // 1024}Ki", "pods": "0"}
    named: list[str] = []
    for known in classes:
        if known.spec.slurm is None:
            continue
        named.append(known.spec.slurm.gres)
        if count := node.devices.get(known.name, 0):
            resource = known.spec.kubernetes.resource if known.spec.kubernetes else None
            amounts[resource or f"isthmus.dev/{known.name}"] = str(count)
    for gres, count in node.engine_resources.items():
        word = gres.replace(":", ".")
        if not any(gres == name or gres.startswith(f"{name}:") for name in named) and _LABEL.search(word):
            amounts[f"gres.isthmus.dev/{word}"] = str(count)
    return amounts


def ready_condition(node: SiteNode) -> dict[str, str]:
    """Whether Slurm can use the node; a drained one is in order, and merely takes no work."""
    if "UNKNOWN" in node.states:
        return _ready("Unknown", "SlurmUnknown", "Slurm has not heard of the node since it started")
    if node.state == "Down":
        words = "+".join(word for word in node.states if not word.startswith("DYNAMIC"))
        return _ready("False", "SlurmDown", f"Slurm says {words or 'DOWN'}")
    if node.state in _ASLEEP:
        return _ready("False", "SlurmPoweredDown", "Slurm has powered the node down, or is about to power it up")
    return _ready("True", "SlurmReady", "Slurm runs jobs here")


def _ready(status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": reason, "message": message}


def difference(have: Mapping[str, Any], wanted: Object) -> NodeChange:
    """What is to be merged into a Node of ours so that it shows what it should."""
    main = _main_difference(have, wanted)
    status = _status_difference(have.get("status") or {}, wanted["status"])
    # With the version that was read: what another changed meanwhile is looked at before it is written over.
    version = {"resourceVersion": have["metadata"]["resourceVersion"]}
    if main:
        main["metadata"] = {**main.get("metadata", {}), **version}
    if status and not main:  # else the first write makes the version an old one
        status["metadata"] = version
    return NodeChange(wanted["metadata"]["name"], main or None, status or None)


def _main_difference(have: Mapping[str, Any], wanted: Object) -> Object:
    found: Object = {}
    for part in ("labels", "annotations"):
        old, new = have["metadata"].get(part) or {}, wanted["metadata"][part]
        changed: Object = {key: value for key, value in new.items() if old.get(key) != value}
        changed |= {key: None for key in old if OURS.match(key) and key not in new}
        if changed:
            found.setdefault("metadata", {})[part] = changed
    old_spec, new_spec = have.get("spec") or {}, wanted["spec"]
    taints = old_spec.get("taints") or []
    held = [(taint["key"], taint.get("effect")) for taint in taints]
    missing = [taint for taint in new_spec["taints"] if (taint["key"], taint["effect"]) not in held]
    if missing:
        found.setdefault("spec", {})["taints"] = [*taints, *missing]
    if bool(old_spec.get("unschedulable")) != new_spec["unschedulable"]:
        found.setdefault("spec", {})["unschedulable"] = new_spec["unschedulable"]
    return found


def _status_difference(have: Mapping[str, Any], wanted: Object) -> Object:
    found: Object = {}
    for part in ("capacity", "allocatable"):
        if changed := _amounts(have.get(part) or {}, wanted[part]):
            found[part] = changed
    if (have.get("addresses") or []) != wanted["addresses"]:
        found["addresses"] = wanted["addresses"]
    info = have.get("nodeInfo") or {}
    if changed := {key: value for key, value in wanted["nodeInfo"].items() if info.get(key) != value}:
        found["nodeInfo"] = changed
    if (conditions := _conditions(have.get("conditions") or [], wanted["conditions"][0])) is not None:
        found["conditions"] = conditions
    return {"status": found} if found else {}


def _amounts(have: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """A server writes amounts in its own way (1000Mi for 1024000Ki): what counts is how much they are."""
    changed: dict[str, str | None] = {
        key: value for key, value in wanted.items() if key not in have or not _same(have[key], value)
    }
    return changed | {key: None for key in have if key not in wanted}


def _same(one: str, other: str) -> bool:
    try:
        return one == other or parse_bytes(one) == parse_bytes(other)
    except ValueError:
        return False


def _conditions(have: Sequence[Mapping[str, Any]], ready: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """The whole list, if ours is not as it should be: others' conditions in it stay."""
    old = next((known for known in have if known["type"] == "Ready"), {})
    strange = any(known["type"] in _KUBELETS for known in have)
    if not strange and all(old.get(key) == ready[key] for key in ("status", "reason", "message")):
        return None
    since = old.get("lastTransitionTime") if old.get("status") == ready["status"] else None
    kept = [known for known in have if known["type"] != "Ready" and known["type"] not in _KUBELETS]
    return [*kept, {**ready, "lastTransitionTime": since or ready["lastTransitionTime"]}]


def _info(version: str) -> dict[str, str]:
    """The version is what `kubectl get nodes` shows; a server wants the other fields to be there."""
    unknown = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
    reported = {"kubeletVersion": version.lower().replace(" ", "-"), "operatingSystem": "linux", "architecture": ""}
    return {**dict.fromkeys(unknown, ""), "kubeProxyVersion": "", **reported}


def moment(now: datetime) -> str:
    """A time as Nodes have it, to the second."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
