"""Work: jobs and experiments as one list, because both are what people submit. Runs belong to what made them.

Newest first a page costs the same among any number. In another order the newest `SORTED` that are wanted are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus.resources.frame.states import ExperimentPhase, JobPhase

from .index import ExperimentRow, JobRow, Place, RowQuery
from .live import Live

SORTED = 5000
"""Rows that are sorted in an order other than that of time."""
ACTIVE: tuple[str, ...] = (JobPhase.RUNNING, JobPhase.PLACED, JobPhase.FINISHING, ExperimentPhase.STOPPING)
WAITING: tuple[str, ...] = (JobPhase.PENDING, JobPhase.QUEUED)
"""For Isthmus itself, or in the queue of a site."""
STATES: Mapping[str, tuple[str, ...]] = {
    "active": ACTIVE,
    "waiting": WAITING,
    "succeeded": (JobPhase.SUCCEEDED,),
    "failed": (JobPhase.FAILED,),
    "cancelled": (JobPhase.CANCELLED,),
}
AnyRow = JobRow | ExperimentRow
_SEQUENCE = [*ACTIVE, *WAITING, JobPhase.FAILED, JobPhase.CANCELLED, JobPhase.SUCCEEDED]


def _seconds(row: AnyRow) -> float:
    """How long it ran, for sorting: what still runs has run longest."""
    if not row.started:
        return -1.0
    if not row.finished:
        return float("inf")
    return (parse_timestamp(row.finished) - parse_timestamp(row.started)).total_seconds()


SORTS: Mapping[str, Callable[[AnyRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: _SEQUENCE.index(row.phase.value),
    "owner": lambda row: row.owner,
    "tenant": lambda row: row.namespace,
    "site": lambda row: row.site,
    "time": _seconds,
    "submitted": lambda row: row.order,
}


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows, and where to go on."""

    rows: list[AnyRow]
    further: Place | None = None
    """By time: the place after which the next page begins."""
    next_number: int = 0
    """In another order: the number of the next page; 0 if there is none."""
    cut: bool = False
    """Whether there are more rows than were sorted."""


async def newest(live: Live, wanted: RowQuery, limit: int, before: Place | None = None) -> RowPage:
    """The newest that are wanted, older than `before`."""
    jobs, more_jobs = await live.jobs.page(wanted, limit, before)
    experiments, more_experiments = await live.experiments.page(wanted, limit, before)
    merged: list[AnyRow] = [*jobs, *experiments]
    merged.sort(key=lambda row: row.order, reverse=True)
    further = len(merged) > limit or more_jobs or more_experiments
    shown = merged[:limit]
    return RowPage(shown, shown[-1].order if further and shown else None)


async def in_order(live: Live, wanted: RowQuery, sort: str, limit: int, number: int) -> RowPage:
    """A page in the order of a column; `-name` is from the end."""
    found = await newest(live, wanted, SORTED)
    ordered = sorted(found.rows, key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    begin = (number - 1) * limit
    following = number + 1 if begin + limit < len(ordered) else 0
    return RowPage(ordered[begin : begin + limit], None, following, found.further is not None)


def counts(live: Live, tenants: Collection[str] | None) -> dict[str, int]:
    """How much work is in which state, as the lists show it: an array or an experiment is one."""
    jobs, experiments = live.jobs.counts(tenants), live.experiments.counts(tenants)
    return {
        state: sum(jobs.get(phase, 0) + experiments.get(phase, 0) for phase in phases)
        for state, phases in STATES.items()
    }
