"""Generating: the published setting, made anew from a seed.

For N machines 10·N jobs arrive after a first one at time 0. Arrivals are exponential with a mean of 75,000 s / N, or
follow the rates `high` (four times `low`), `low`, or `mixed`, which alternates about every ten jobs. What a rate is
depends on the jobs, as published: the machines' devices divided by the job's time on one device, a third of it at
the high rate, plus thirty per cent.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.models import (
    CHEAPEST,
    FREE,
    CostObjective,
    DeadlineJob,
    MachineType,
    Overheads,
    RuntimeProfile,
)

from .simulating import Instance

JOBS_PER_MACHINE = 10
MEAN_GAP = 75_000.0
CLUSTER = 10
"""Jobs that arrive at one rate before `mixed` changes to the other."""


class Scenario(StrEnum):
    """How jobs arrive."""

    EXPONENTIAL = "exponential"
    HIGH = "high"
    LOW = "low"
    MIXED = "mixed"


def generate(
    scenario: Scenario,
    nodes: int,
    profiles: Sequence[RuntimeProfile],
    catalogue: tuple[MachineType, ...],
    seed: int,
    *,
    overheads: Overheads = FREE,
    objective: CostObjective = CHEAPEST,
) -> Instance:
    """An instance of the setting."""
    if nodes < 1:
        raise Invalid(f"{nodes} machines; there must be at least one")
    if not profiles:
        raise Invalid("there are no profiles to draw jobs from")
    random = Random(f"{scenario}/{nodes}/{seed}")
    drawn = [random.choice(profiles) for _ in range(JOBS_PER_MACHINE * nodes + 1)]
    jobs, now = [], 0.0
    for index, (profile, gap) in enumerate(zip(drawn, _gaps(scenario, nodes, drawn, catalogue), strict=True)):
        now += random.expovariate(1.0) * gap if index else 0.0
        fastest = min(_placeable(profile, catalogue).values())
        deadline = now + random.uniform(fastest, 3 * fastest)
        jobs.append(DeadlineJob(f"j{index + 1}", now, deadline, 2 * random.uniform(0.0015, 0.0075), profile))
    return Instance(
        tuple(jobs),
        tuple(f"n{index + 1}" for index in range(nodes)),
        catalogue,
        overheads,
        objective,
    )


def _gaps(
    scenario: Scenario, nodes: int, drawn: Sequence[RuntimeProfile], catalogue: Sequence[MachineType]
) -> list[float]:
    """The mean time before each arrival."""
    if scenario is Scenario.EXPONENTIAL:
        return [MEAN_GAP / nodes] * len(drawn)
    devices = nodes * max(kind.devices for kind in catalogue)
    gaps = []
    for start in range(0, len(drawn), CLUSTER):
        cluster = drawn[start : start + CLUSTER]
        high = scenario is Scenario.HIGH or (scenario is Scenario.MIXED and (start // CLUSTER) % 2 == 0)
        rates = [devices / _smallest(profile, catalogue) * 1.3 / (3 if high else 12) for profile in cluster]
        gaps += [len(cluster) / sum(rates)] * len(cluster)
    return gaps


def _placeable(profile: RuntimeProfile, catalogue: Sequence[MachineType]) -> dict[tuple[str, int], float]:
    found = {
        (device, count): seconds
        for (device, count), seconds in profile.seconds.items()
        if any(kind.device == device and kind.devices >= count for kind in catalogue)
    }
    if not found:
        wanted = ", ".join(sorted({device for device, _ in profile.seconds}))
        raise Invalid(f"no machine of the price table has the devices of a profile ({wanted}); add one or leave it out")
    return found


def _smallest(profile: RuntimeProfile, catalogue: Sequence[MachineType]) -> float:
    """The best time on the fewest devices."""
    times = _placeable(profile, catalogue)
    fewest = min(count for _, count in times)
    return min(seconds for (_, count), seconds in times.items() if count == fewest)
