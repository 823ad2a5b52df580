"""How long a small job would wait in a partition: a range, and an estimate. Pure.

The lower end is honest about what nobody knows: any job may end at any moment. The upper end is Slurm's own plan: it
assumes that all jobs use the whole of their time limits. Where Slurm has no plan, or a job ahead has no limit, there is
no upper end. Jobs that come later and matter more are in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from isthmus.engines.base import RunState
from isthmus.engines.slurm.facts import SlurmJob, SlurmNode, SlurmPartition


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds, in whole minutes."""

    shortest: float
    longest: float | None
    """None: nobody can know."""


def estimate(
    partition: SlurmPartition, nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob], now: datetime
) -> Wait | None:
    """The wait of a job of one cpu; None where nothing starts at all."""
    if partition.state.upper() != "UP":
        return None
    inside = [node for node in nodes if partition.name in node.partitions and node.usable]
    if not inside:
        return None
    here = [job for job in jobs if partition.name in job.partition.split(",")]
    waiting = [job for job in here if job.meaning.state is RunState.QUEUED and not _holds_itself(job)]
    if any(node.allocated_cpus < node.cpus for node in inside) and not waiting:
        return Wait(0.0, 0.0)
    ends = [job.ended_at for job in jobs if job.meaning.state is RunState.RUNNING and job.ended_at is not None]
    plans = [job.started_at for job in waiting if job.started_at is not None]
    if len(plans) < len(waiting) or not (ends or plans):
        return Wait(0.0, None)
    moment = max([*plans, *([min(ends)] if ends else [])])
    return Wait(0.0, max(0.0, (moment - now).total_seconds() // 60 * 60 + 60))


def _holds_itself(job: SlurmJob) -> bool:
    """Whether it waits for something else than room: nobody waits behind it."""
    return job.reason.startswith(("JobHeld", "Dependency", "BeginTime", "Licenses", "Reservation"))
