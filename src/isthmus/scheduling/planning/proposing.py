"""Proposing: what the optimiser in `deadlines` would give each job, if devices that are free now were all there is.

Each (site, class) with free devices becomes a machine that has one configuration. The optimiser believes that any
machine can be configured as any other, and so may promise the devices of a site twice; its plan is therefore a
proposal, which `planning` fits into the room there really is and takes only if that is cheaper than the other orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from isthmus.scheduling.deadlines import models

from .planning import Situation, Task
from .workloads import CPUS, Key

MOST_JOBS = 64
Proposal = Mapping[str, tuple[str, Key]]


def proposal(situation: Situation) -> Proposal:
    """For jobs that it would start now, the site and the devices."""
    snapshot = snapshot_of(situation)
    if snapshot is None:
        return {}
    from isthmus.scheduling.deadlines.optimising import optimise  # NumPy takes a moment to import

    plan = optimise(snapshot)
    found: dict[str, tuple[str, Key]] = {}
    for uid, place in plan.placements.items():
        site, _, name = plan.machines[place.machine].device.partition("/")
        found[uid] = site, (name, place.devices)
    return found


def snapshot_of(situation: Situation) -> models.Snapshot | None:
    """The situation in the optimiser's terms; None if there is nothing to optimise."""
    tasks = [task for task in situation.tasks if task.ways and isfinite(task.deadline)][:MOST_JOBS]
    if len(tasks) < 2:
        return None
    catalogue: dict[str, models.MachineType] = {}
    for task in tasks:
        for way in task.ways:
            device, (name, count) = f"{way.site}/{way.key[0]}", way.key
            free = _free(situation, way.site, name)
            if free > 0 and device not in catalogue:
                price, power = way.rate * 3600 / count * free, (way.watts or 0.0) / count * free
                catalogue[device] = models.MachineType(device, device, free, price, power)
    jobs = [state for task in tasks if (state := _state(situation, task, catalogue)) is not None]
    if not jobs:
        return None
    overheads = models.Overheads(restore=situation.restore)
    return models.Snapshot(situation.now, tuple(catalogue), tuple(catalogue.values()), tuple(jobs), overheads=overheads)


def _free(situation: Situation, site: str, name: str) -> int:
    room = situation.sites[site].free_at(situation.now)
    return room.milli_cpus // 1000 if name == CPUS else room.of(name)


def _state(situation: Situation, task: Task, catalogue: Mapping[str, models.MachineType]) -> models.JobState | None:
    seconds = {
        (device, way.key[1]): way.cautious
        for way in task.ways
        if (device := f"{way.site}/{way.key[0]}") in catalogue and way.key[1] <= catalogue[device].devices
    }
    if not seconds:
        return None
    job = models.DeadlineJob(task.uid, situation.now, task.deadline, task.weight, models.RuntimeProfile(seconds))
    return models.JobState(job, max(task.remaining, 1e-6))
