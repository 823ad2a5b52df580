from __future__ import annotations

import json

from isthmus.formats.glue2 import export

SITE = {
    "metadata": {"name": "lab", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"driver": "slurm"},
    "status": {
        "phase": "Ready",
        "version": "Slurm 22.05.8",
        "capacity": {"cpus": 4, "memoryBytes": 2 << 30, "devices": {"akida": 1}},
        "nodes": [
            {"name": "n1", "cpus": 2, "memoryBytes": 1 << 30, "features": ["board"]},
            {"name": "n2", "cpus": 2, "memoryBytes": 1 << 30, "features": ["board"]},
            {"name": "n3", "cpus": 8, "memoryBytes": 1 << 30},
        ],
        "queues": [{"name": "short", "state": "Up", "maxTime": "30m", "pending": 3, "running": 2, "longestWait": "5m"}],
    },
}


def test_a_site_in_glue_2() -> None:
    found = export(SITE)
    json.dumps(found)
    (service,) = found["ComputingService"]
    assert (service["RunningJobs"], service["WaitingJobs"], service["ServingState"]) == (2, 3, "production")
    (share,) = found["ComputingShare"]
    assert (share["MappingQueue"], share["MaxWallTime"]) == ("short", 1800)
    assert share["EstimatedWorstWaitingTime"] == 300
    assert [e["TotalInstances"] for e in found["ExecutionEnvironment"]] == [2, 1]
    assert found["AcceleratorEnvironment"][0]["PhysicalAccelerators"] == 1
    manager = found["ComputingManager"][0]
    assert (manager["ProductName"], manager["ProductVersion"]) == ("Slurm", "22.05.8")
    ids = [entity["ID"] for entities in found.values() for entity in entities]
    assert len(set(ids)) == len(ids)


def test_a_site_that_was_never_seen() -> None:
    found = export({"metadata": {"name": "new"}, "spec": {"driver": "slurm"}})
    assert found["ComputingService"][0]["ServingState"] == "closed"
