"""Settling: loads become a plan, with as many jobs as possible left where they are.

A method decides what is on a machine together; which machine that is does not matter to the cost, only to what has
to be moved. A load goes to the machine that already runs most of it unchanged, else to one that runs in the same
configuration, else to one that is off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .models import CostObjective, MachinePlan, MachineShare, MachineType, Snapshot


@dataclass(frozen=True, slots=True)
class Load:
    """What runs together on one machine: the number of devices of each job."""

    kind: MachineType
    jobs: Mapping[str, int]
    home: str | None = None
    """The machine it must be on."""


@lru_cache(maxsize=256)
def cheapest_hosts(catalogue: tuple[MachineType, ...], objective: CostObjective) -> Mapping[str, list[MachineType]]:
    """For each device type, at index n, the cheapest machine type with at least n devices."""
    found: dict[str, list[MachineType]] = {}
    for device in sorted({kind.device for kind in catalogue}):
        kinds = [kind for kind in catalogue if kind.device == device]
        largest = max(kind.devices for kind in kinds)
        found[device] = [
            min((k for k in kinds if k.devices >= n), key=lambda k: (objective.rate(k), k.devices, k.name))
            for n in range(largest + 1)
        ]
    return found


def settle(snapshot: Snapshot, loads: Iterable[Load]) -> MachinePlan:
    """Give each load a machine."""
    present = {state.job.name: state.placement for state in snapshot.jobs if state.placement}
    wishes: list[tuple[int, int, str]] = []
    todo = list(loads)
    chosen = {index: load.home for index, load in enumerate(todo) if load.home is not None}
    taken = set(chosen.values())
    for index, load in enumerate(todo):
        same = Counter(
            place.machine
            for job, devices in load.jobs.items()
            if (place := present.get(job)) and place.devices == devices
        )
        wishes += [
            (-kept, index, machine) for machine, kept in same.items() if snapshot.configured.get(machine) == load.kind
        ]
    for _, index, machine in sorted(wishes):
        if index not in chosen and machine not in taken:
            chosen[index] = machine
            taken.add(machine)
    free = [machine for machine in snapshot.machines if machine not in taken]
    running: dict[MachineType, list[str]] = {}
    for machine in free:
        if machine in snapshot.configured:
            running.setdefault(snapshot.configured[machine], []).append(machine)
    rest = []
    for index, load in enumerate(todo):
        if index not in chosen:
            if same_kind := running.get(load.kind):
                chosen[index] = same_kind.pop()
            else:
                rest.append(index)
    taken = set(chosen.values())
    spare = sorted((m for m in free if m not in taken), key=lambda m: m in snapshot.configured)
    chosen.update(zip(rest, spare, strict=False))
    placements = {
        job: MachineShare(chosen[index], devices)
        for index, load in enumerate(todo)
        for job, devices in load.jobs.items()
    }
    return MachinePlan({chosen[index]: load.kind for index, load in enumerate(todo)}, placements)
