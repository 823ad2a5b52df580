"""Bounding: what jobs cost at least.

A job cannot cost less than its curve says (`curves`), so the sum over all jobs, at their submission, bounds every
schedule from below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus.scheduling.deadlines.curves import Edge, curve_of
from isthmus.scheduling.deadlines.models import CostObjective, DeadlineJob, MachineType


def least_cost(edges: Iterable[Edge], remaining: float, left: float) -> float:
    """The cheapest way to the end, with `left` seconds to the deadline and no other job in the way."""
    return max(edge.height * remaining - edge.slope * left for edge in edges)


def lower_bound(jobs: Sequence[DeadlineJob], catalogue: tuple[MachineType, ...], objective: CostObjective) -> float:
    """What the jobs cost at least, with as many machines as one likes."""
    total = 0.0
    for job in jobs:
        curve = curve_of(job.profile, catalogue, objective)
        if curve is not None:
            total += least_cost(curve.edges(job.weight), 1.0, job.deadline - job.submitted)
    return total
