"""Whose energy was it? A node's counter counts everything on the node; jobs that share it share its energy. Pure.

Slurm books to every job the energy of its nodes while it ran, all of it. Where several jobs were on a node at once,
each is given the part of its cpus among the cpus in use, over the time they were there together.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from .facts import SlurmJob
from .hostlists import expand


def share_of_nodes(job: SlurmJob, others: Iterable[SlurmJob], now: datetime) -> float:
    """The part of its nodes' energy that is a job's own, from above 0 to 1."""
    begin, end = job.started_at, job.ended_at or now
    mine = set(expand(job.nodes))
    if begin is None or not mine:
        return 1.0
    beside = [
        (set(expand(other.nodes)) & mine, other)
        for other in others
        if other.id != job.id and other.started_at is not None and other.nodes
    ]
    beside = [(nodes, other) for nodes, other in beside if nodes and _overlaps(other, begin, end, now)]
    if not beside:
        return 1.0
    shares = [_on_node(job, [o for nodes, o in beside if node in nodes], begin, end, now) for node in sorted(mine)]
    return sum(shares) / len(shares)


def _on_node(job: SlurmJob, others: list[SlurmJob], begin: datetime, end: datetime, now: datetime) -> float:
    cpus = _cpus_per_node(job)
    if end <= begin:  # over within the same second: by cpus alone
        return cpus / (cpus + sum(_cpus_per_node(other) for other in others))
    edges = {begin, end}
    for other in others:
        edges |= {m for m in (other.started_at, other.ended_at or now) if m is not None and begin < m < end}
    moments = sorted(edges)
    total = 0.0
    for first, last in pairwise(moments):
        beside = sum(_cpus_per_node(o) for o in others if _overlaps(o, first, last, now))
        total += cpus / (cpus + beside) * (last - first).total_seconds()
    return total / (end - begin).total_seconds()


def _cpus_per_node(job: SlurmJob) -> float:
    return max(1, job.cpus) / max(1, job.node_count)


def _overlaps(other: SlurmJob, begin: datetime, end: datetime, now: datetime) -> bool:
    first, last = other.started_at, other.ended_at or now
    if first is None or other.meaning.state.value == "Queued":
        return False
    return first < end and last > begin if end > begin else first <= begin <= last
