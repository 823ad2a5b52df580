"""A Site as GLUE 2 (OGF GFD.147), in its JSON rendering: what grid information systems read. Pure.

A Slurm site is a ComputingService with a ComputingManager; each partition is a ComputingShare, each kind of node an
ExecutionEnvironment, each class of device an AcceleratorEnvironment (GLUE 2.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from isthmus._kit.durations import parse_duration

_STATES = {"Ready": "production", "Disabled": "draining", "Unreachable": "closed"}
_SHARES = {"Up": "production", "Drain": "draining", "Down": "closed", "Inactive": "closed"}


def export(site: Mapping[str, Any]) -> dict[str, Any]:
    """The entities of one site, by kind."""
    name = site["metadata"]["name"]
    status = site.get("status") or {}
    service = f"urn:isthmus:{name}"
    created = status.get("probedAt") or site["metadata"].get("creationTimestamp")
    state = _STATES.get(status.get("phase", ""), "closed")
    found: dict[str, Any] = {
        "ComputingService": [
            {
                "ID": service,
                "Name": name,
                "CreationTime": created,
                "Type": "dev.isthmus.site",
                "QualityLevel": "production",
                "ServingState": state,
                "Capability": ["executionmanagement.jobexecution"],
                **_counts(status),
            }
        ],
        "ComputingManager": [_manager(service, site, status)],
        "ComputingShare": [_share(service, queue) for queue in status.get("queues") or ()],
        "ExecutionEnvironment": _environments(service, status),
        "AcceleratorEnvironment": [
            {
                "ID": f"{service}:accelerator:{device}",
                "Type": device,
                "PhysicalAccelerators": count,
                "LogicalAccelerators": count,
                "Associations": {"ComputingManagerID": f"{service}:manager"},
            }
            for device, count in sorted(((status.get("capacity") or {}).get("devices") or {}).items())
        ],
    }
    return {kind: entities for kind, entities in found.items() if entities}


def _counts(status: Mapping[str, Any]) -> dict[str, int]:
    queues = status.get("queues") or ()
    waiting, running = (sum(int(q.get(key, 0)) for q in queues) for key in ("pending", "running"))
    return {"TotalJobs": waiting + running, "RunningJobs": running, "WaitingJobs": waiting}


def _manager(service: str, site: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    capacity = status.get("capacity") or {}
    product, _, version = str(status.get("version") or site["spec"]["driver"]).partition(" ")
    return {
        "ID": f"{service}:manager",
        "Name": site["metadata"]["name"],
        "ProductName": product,
        "ProductVersion": version,
        "TotalLogicalCPUs": int(capacity.get("cpus", 0)),
        "TotalPhysicalCPUs": int(capacity.get("cpus", 0)),
        "Associations": {"ComputingServiceID": service},
    }


def _share(service: str, queue: Mapping[str, Any]) -> dict[str, Any]:
    share: dict[str, Any] = {
        "ID": f"{service}:share:{queue['name']}",
        "Name": queue["name"],
        "MappingQueue": queue["name"],
        "ServingState": _SHARES.get(queue.get("state", "Up"), "closed"),
        "RunningJobs": int(queue.get("running", 0)),
        "WaitingJobs": int(queue.get("pending", 0)),
        "TotalJobs": int(queue.get("running", 0)) + int(queue.get("pending", 0)),
        "Associations": {"ComputingServiceID": service, "ComputingManagerID": f"{service}:manager"},
    }
    if queue.get("maxTime"):
        share["MaxWallTime"] = int(parse_duration(queue["maxTime"]))
    if queue.get("longestWait"):
        share["EstimatedWorstWaitingTime"] = int(parse_duration(queue["longestWait"]))
    return share


def _environments(service: str, status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nodes that are alike are one environment."""
    kinds: Counter[tuple[int, int, tuple[str, ...]]] = Counter()
    for node in status.get("nodes") or ():
        kinds[(int(node.get("cpus", 0)), int(node.get("memoryBytes", 0)), tuple(node.get("features") or ()))] += 1
    return [
        {
            "ID": f"{service}:environment:{number}",
            "Platform": "unknown",
            "OSFamily": "linux",
            "TotalInstances": count,
            "LogicalCPUs": cpus,
            "PhysicalCPUs": cpus,
            "MainMemorySize": memory >> 20,
            "ApplicationEnvironment": list(features),
            "Associations": {"ComputingManagerID": f"{service}:manager"},
        }
        for number, ((cpus, memory, features), count) in enumerate(sorted(kinds.items()), 1)
    ]
