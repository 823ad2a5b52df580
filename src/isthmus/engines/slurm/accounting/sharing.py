"""Whose energy was it? A node's counter counts everything on the node; jobs that share it share its energy. Pure.

Slurm charges to every job the energy of its nodes while it ran, all of it. Where several jobs were on a node at once,
each is given the part of its cpus among the cpus in use, over the time they were there together.

All jobs of a snapshot are put in order once, by node and start, and only when the first share is asked for; each share
then costs as much as there were jobs on the same nodes at about the same time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from isthmus.engines.base import RunState
from isthmus.engines.slurm.facts import SlurmJob

from .hostlists import expand


class _Stay(NamedTuple):
    """A job on a node, from its first second to its last."""

    first: datetime
    last: datetime
    number: int
    cpus: float


class _Node(NamedTuple):
    """The stays on one node, by their starts; beside each the latest end of those up to it."""

    stays: list[_Stay]
    firsts: list[datetime]
    latest: list[datetime]

    def beside(self, number: int, begin: datetime, end: datetime) -> list[_Stay]:
        """The stays of others that have time in common with this one."""
        until = bisect_left(self.firsts, end) if end > begin else bisect_right(self.firsts, begin)
        found = []
        # From the last that began before the end, back to where nobody was left who could still have been there.
        for at in range(until - 1, -1, -1):
            if self.latest[at] < begin:
                break
            stay = self.stays[at]
            if stay.number != number and _together(stay, begin, end):
                found.append(stay)
        return found


class Neighbours:
    """Who was on which node when, at the moment of a snapshot."""

    def __init__(self, jobs: Iterable[SlurmJob], now: datetime) -> None:
        self._jobs, self._now = jobs, now
        self._nodes: dict[str, _Node] | None = None

    def share(self, job: SlurmJob) -> float:
        """The part of its nodes' energy that is a job's own, from above 0 to 1."""
        begin, end = job.started_at, job.ended_at or self._now
        mine = _names(job.nodes)
        if begin is None or not mine:
            return 1.0
        if self._nodes is None:
            self._nodes = _by_node(self._jobs, self._now)
        shares = [self._on_node(job, name, begin, end) for name in mine]
        return sum(shares) / len(shares)

    def _on_node(self, job: SlurmJob, name: str, begin: datetime, end: datetime) -> float:
        assert self._nodes is not None
        node, cpus = self._nodes.get(name), _cpus_per_node(job)
        others = node.beside(job.id, begin, end) if node else []
        if not others:
            return 1.0
        if end <= begin:  # over within the same second: by cpus alone
            return cpus / (cpus + sum(other.cpus for other in others))
        return _over_time(cpus, others, begin, end) / (end - begin).total_seconds()


def _over_time(cpus: float, others: Sequence[_Stay], begin: datetime, end: datetime) -> float:
    """The seconds that are the job's own, each weighed by its part of the cpus then in use."""
    changes: dict[datetime, float] = {begin: 0.0, end: 0.0}
    for other in others:
        if other.last > other.first:
            first, last = max(other.first, begin), min(other.last, end)
            changes[first] = changes.get(first, 0.0) + other.cpus
            changes[last] = changes.get(last, 0.0) - other.cpus
    moments = sorted(changes)
    in_use = accumulate(changes[moment] for moment in moments)
    return sum(
        cpus / (cpus + max(0.0, beside)) * (last - first).total_seconds()
        for (first, last), beside in zip(pairwise(moments), in_use, strict=False)
    )


def _by_node(jobs: Iterable[SlurmJob], now: datetime) -> dict[str, _Node]:
    found: dict[str, list[_Stay]] = {}
    for job in jobs:
        if job.started_at is None or not job.nodes or job.meaning.state is RunState.QUEUED:
            continue
        stay = _Stay(job.started_at, job.ended_at or now, job.id, _cpus_per_node(job))
        for name in _names(job.nodes):
            found.setdefault(name, []).append(stay)
    nodes = {}
    for name, stays in found.items():
        stays.sort()
        nodes[name] = _Node(stays, [stay.first for stay in stays], list(accumulate((s.last for s in stays), max)))
    return nodes


@lru_cache(maxsize=4096)
def _names(nodes: str) -> tuple[str, ...]:
    """Most jobs of a cluster are on the same few sets of nodes."""
    return tuple(sorted(set(expand(nodes))))


def _cpus_per_node(job: SlurmJob) -> float:
    return max(1, job.cpus) / max(1, job.node_count)


def _together(stay: _Stay, begin: datetime, end: datetime) -> bool:
    if end > begin:
        return stay.first < end and stay.last > begin
    return stay.first <= begin <= stay.last
