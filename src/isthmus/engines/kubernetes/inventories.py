"""From what Kubernetes says of its nodes to an inventory. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isthmus._kit.quantities import parse_bytes, parse_cpus
from isthmus.engines.base import Inventory
from isthmus.resources.deviceclasses import KubernetesDevice
from isthmus.resources.sites import Capacity, SiteNode

from .pods import SITE

OLDEST = (1, 20)


def version_of(reported: Mapping[str, Any]) -> tuple[int, int]:
    """Major and minor number of a server."""
    digits = ["".join(c for c in str(reported.get(name, "0")) if c.isdigit()) or "0" for name in ("major", "minor")]
    return int(digits[0]), int(digits[1])


def inventory(
    reported: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    devices: Mapping[str, KubernetesDevice],
    others: Capacity | None = None,
) -> Inventory:
    """What the cluster offers. Nodes that are not ready or take no pods are shown, and do not count.

    Those that stand for nodes of another site (see `exposing`) are that site's.
    """
    shown = [_node(node, devices) for node in nodes if SITE not in (node["metadata"].get("labels") or {})]
    usable = [node for node in shown if node.state == "Ready"]
    counts = {name: sum(node.devices.get(name, 0) for node in usable) for name in devices}
    return Inventory(
        version=f"Kubernetes {reported.get('gitVersion', '')}",
        capacity=Capacity(
            cpus=sum(node.cpus for node in usable),
            memory_bytes=sum(node.memory_bytes for node in usable),
            devices={name: count for name, count in counts.items() if count},
        ),
        others=others,
        nodes=tuple(shown),
        features={
            "others' work": "seen" if others else "not seen: Isthmus may not list the pods of all namespaces",
            "files": "streamed through the API server",
            "logs": "copied while they are written",
            "usage": "read in the pod from its cgroup; sampled by the metrics API or the nodes, with the rights to",
            "energy": "estimated from power models",
            "exactly-once": "by the pod's name; a lost pod has no successor",
        },
    )


def requested(found: Sequence[Mapping[str, Any]], devices: Mapping[str, KubernetesDevice]) -> Capacity:
    """What some pods ask for together. What starts a pod runs before the rest of it, and counts where it is larger."""
    cpus, memory = 0, 0
    counts = dict.fromkeys((name for name, wish in devices.items() if wish.resource), 0)
    for pod in found:
        spec = pod["spec"]
        both = [_requests(spec.get(part) or ()) for part in ("containers", "initContainers")]
        cpus += max(_sum(both[0], "cpu", parse_cpus), *_each(both[1], "cpu", parse_cpus))
        memory += max(_sum(both[0], "memory", parse_bytes), *_each(both[1], "memory", parse_bytes))
        for name in counts:
            counts[name] += _sum(both[0], devices[name].resource or "", int)
    return Capacity(cpus=cpus / 1000, memory_bytes=memory, devices={name: n for name, n in counts.items() if n})


def _requests(containers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, str]]:
    return [(container.get("resources") or {}).get("requests") or {} for container in containers]


def _each(requests: Sequence[Mapping[str, str]], name: str, read: Callable[[str], int]) -> list[int]:
    found = [0]
    for asked in requests:
        with contextlib.suppress(ValueError):  # in a form that nobody writes (12345u): their own affair, and little
            found.append(read(asked.get(name, "0")))
    return found


def _sum(requests: Sequence[Mapping[str, str]], name: str, read: Callable[[str], int]) -> int:
    return sum(_each(requests, name, read))


def _node(node: Mapping[str, Any], devices: Mapping[str, KubernetesDevice]) -> SiteNode:
    metadata, status = node["metadata"], node.get("status") or {}
    free = status.get("allocatable") or {}
    labels = metadata.get("labels") or {}
    return SiteNode(
        name=metadata["name"],
        state=state_of(node),
        cpus=parse_cpus(free.get("cpu", "0")) / 1000 if free.get("cpu", "0") != "0" else 0,
        memory_bytes=parse_bytes(free["memory"]) if free.get("memory", "0") != "0" else 0,
        devices={name: count for name, wish in devices.items() if (count := _units(wish, free, labels))},
        features=sorted(key for key in labels if "kubernetes.io/" not in key),
    )


def _units(wish: KubernetesDevice, free: Mapping[str, str], labels: Mapping[str, str]) -> int:
    """How many units a node has; a class known by labels alone counts one for each node."""
    if any(labels.get(key) != value for key, value in wish.node_labels.items()):
        return 0
    if wish.resource:
        return int(free.get(wish.resource, "0"))
    return 1 if wish.node_labels else 0


def state_of(node: Mapping[str, Any]) -> str:
    """One word for people."""
    conditions = {c["type"]: c["status"] for c in (node.get("status") or {}).get("conditions") or ()}
    if conditions.get("Ready") != "True":
        return "Down"
    if (node.get("spec") or {}).get("unschedulable"):
        return "Drained"
    pressed = [name for name in ("MemoryPressure", "DiskPressure", "PIDPressure") if conditions.get(name) == "True"]
    return pressed[0] if pressed else "Ready"
