"""Shares of a node's energy: the quick way gives what the plain one gives."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.slurm.accounting.hostlists import expand
from isthmus.engines.slurm.accounting.sharing import Neighbours
from isthmus.engines.slurm.facts import SlurmJob

T = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ["", "n1", "n2", "n[1-2]", "n[1-3]", "n[2,4]", "(null)"]


def plain_share(job: SlurmJob, others: Iterable[SlurmJob], now: datetime) -> float:
    """Every other job is looked at, for every piece of time."""
    begin, end = job.started_at, job.ended_at or now
    mine = set(expand(job.nodes))
    if begin is None or not mine:
        return 1.0
    beside = [(set(expand(o.nodes)) & mine, o) for o in others if o.id != job.id and o.started_at and o.nodes]
    beside = [(nodes, other) for nodes, other in beside if nodes and _overlaps(other, begin, end, now)]
    shares = [_on_node(job, [o for nodes, o in beside if node in nodes], begin, end, now) for node in mine]
    return sum(shares) / len(shares)


def _on_node(job: SlurmJob, others: list[SlurmJob], begin: datetime, end: datetime, now: datetime) -> float:
    cpus = _cpus(job)
    if end <= begin:
        return cpus / (cpus + sum(_cpus(other) for other in others))
    edges = {begin, end}
    for other in others:
        edges |= {m for m in (other.started_at, other.ended_at or now) if m is not None and begin < m < end}
    total = 0.0
    for first, last in pairwise(sorted(edges)):
        beside = sum(_cpus(o) for o in others if _overlaps(o, first, last, now))
        total += cpus / (cpus + beside) * (last - first).total_seconds()
    return total / (end - begin).total_seconds()


def _cpus(job: SlurmJob) -> float:
    return max(1, job.cpus) / max(1, job.node_count)


def _overlaps(other: SlurmJob, begin: datetime, end: datetime, now: datetime) -> bool:
    first, last = other.started_at, other.ended_at or now
    if first is None or other.meaning.state.value == "Queued":
        return False
    return first < end and last > begin if end > begin else first <= begin <= last


moments = st.one_of(st.none(), st.integers(0, 20).map(lambda s: T + timedelta(seconds=s)))
states = st.sampled_from([("RUNNING",), ("COMPLETED",), ("PENDING",), ("FAILED",)])


@st.composite
def clusters(draw: st.DrawFn) -> list[SlurmJob]:
    count = draw(st.integers(1, 12))
    return [
        SlurmJob(
            number,
            draw(states),
            started_at=draw(moments),
            ended_at=draw(moments),
            nodes=draw(st.sampled_from(NODES)),
            cpus=draw(st.integers(0, 8)),
            node_count=draw(st.integers(0, 3)),
        )
        for number in range(count)
    ]


@given(clusters(), st.integers(0, 25))
def test_the_quick_way_gives_what_the_plain_one_gives(jobs: list[SlurmJob], seconds: int) -> None:
    now = T + timedelta(seconds=seconds)
    neighbours = Neighbours(jobs, now)
    for job in jobs:
        assert neighbours.share(job) == pytest.approx(plain_share(job, jobs, now))


def test_each_list_of_nodes_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.engines.slurm.accounting import sharing

    read: list[str] = []
    monkeypatch.setattr(sharing, "expand", lambda text: read.append(text) or expand(text))
    jobs = [
        SlurmJob(n, ("COMPLETED",), started_at=T + timedelta(seconds=n), ended_at=T + timedelta(seconds=n + 3),
                 nodes=f"once[{n % 7}-{n % 7 + 1}]", cpus=2, node_count=2)
        for n in range(500)
    ]  # fmt: skip
    neighbours = Neighbours(jobs, T)
    assert all(0 < neighbours.share(job) <= 1 for job in jobs)
    assert len(read) == 7
