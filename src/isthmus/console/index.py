"""Indexes of jobs and experiments: a small row for each, newest first; a page of them costs the same among any number.

The store lists by name; people want the newest, and search by a part of the name. A feed keeps the rows equal to the
store from the first time that somebody opens the console. Who may see which rows is decided by whoever asks: every
question names the tenants.
"""

from __future__ import annotations

import asyncio
import shlex
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from isthmus.resources.experiments import EXPERIMENT_LABEL
from isthmus.resources.jobs import ARRAY_LABEL
from isthmus.resources.selectors import EVERYTHING, Selector
from isthmus.resources.states import ExperimentPhase, JobPhase
from isthmus.store.base import Change, EventType, Key, Record

SLICE = 5000
"""Rows looked at before others get a turn."""
Place = tuple[str, str]
"""Where a row belongs among the others: when it was made, and its uid."""


class Ordered(Protocol):
    """What every row has."""

    @property
    def uid(self) -> str:
        """Of the object."""
        ...

    @property
    def order(self) -> Place:
        """Where it belongs among the others."""
        ...


R = TypeVar("R", bound=Ordered)


@dataclass(frozen=True, slots=True)
class Row:
    """What a list shows of a job."""

    namespace: str
    name: str
    uid: str
    created: str
    phase: JobPhase
    intent: str
    reason: str
    message: str
    site: str
    started: str
    finished: str
    exit_code: int | None
    signal: str
    labels: Mapping[str, str]
    what: str
    wants: Mapping[str, Any]
    array: Mapping[str, int] | None

    @property
    def order(self) -> Place:
        """Where it belongs among the others."""
        return (self.created, self.uid)

    @property
    def element(self) -> bool:
        """Whether an array or an experiment made it."""
        return ARRAY_LABEL in self.labels or EXPERIMENT_LABEL in self.labels


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows. `tenants` None means all."""

    tenants: Collection[str] | None
    phases: Collection[JobPhase] = ()
    text: str = ""
    site: str = ""
    labels: Selector = EVERYTHING
    elements: bool = False

    def __call__(self, row: Row) -> bool:
        """Whether a row is wanted."""
        return (
            (self.tenants is None or row.namespace in self.tenants)
            and (not self.phases or row.phase in self.phases)
            and (self.elements or not row.element)
            and (not self.site or row.site == self.site)
            and (not self.text or self.text in row.name)
            and (not self.labels or self.labels.matches(row.labels))
        )


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """What a list shows of an experiment."""

    namespace: str
    name: str
    uid: str
    created: str
    phase: ExperimentPhase
    message: str
    cells: int
    ended: int
    runs: int
    started: str
    finished: str

    @property
    def order(self) -> Place:
        """Where it belongs among the others."""
        return (self.created, self.uid)


@dataclass(slots=True)
class Index(Generic[R]):
    """All objects of a kind, in rows."""

    told: Callable[[Key | None], None]
    """Called after every change, with the object, or with None when anything may have changed."""
    row_of: Callable[[Record], R]
    _rows: dict[str, R] = field(default_factory=dict)
    _order: list[Place] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._rows)

    def replace(self, records: Iterable[Record]) -> None:
        """Begin anew."""
        self._rows = {}
        for record in records:
            row = self.row_of(record)
            record.shrink()
            self._rows[row.uid] = row
        self._order = sorted(row.order for row in self._rows.values())
        self._recount(None, None)
        self.told(None)

    def change(self, change: Change) -> None:
        """One object changed."""
        if change.record is None:
            return
        row = self.row_of(change.record)
        old = self._rows.pop(row.uid, None)
        gone = change.type is EventType.DELETED
        if gone:
            if old is not None:
                del self._order[bisect_left(self._order, old.order)]
        else:
            self._rows[row.uid] = row
            if old is None:
                insort(self._order, row.order)
        self._recount(old, None if gone else row)
        self.told(change.record.key)

    def _recount(self, old: R | None, new: R | None) -> None:
        """For indexes that count: a row became another; None and None: all did."""

    async def page(
        self, wanted: Callable[[R], bool], limit: int, before: Place | None = None
    ) -> tuple[list[R], Place | None]:
        """The newest rows that are wanted and older than `before`, and where to go on if there are more."""
        order = self._order
        found: list[R] = []
        at = bisect_left(order, before) if before else len(order)
        seen = 0
        while at > 0:
            at -= 1
            seen += 1
            row = self._rows.get(order[at][1])
            if row is not None and wanted(row):
                if len(found) == limit:
                    return found, found[-1].order
                found.append(row)
            if seen % SLICE == 0:
                await asyncio.sleep(0)
                if order is not self._order or at > len(order):
                    return found, found[-1].order if found else None
        return found, None


class JobIndex(Index[Row]):
    """All jobs; it also counts them."""

    def __init__(self, told: Callable[[Key | None], None]) -> None:
        super().__init__(told, row_of)
        self._counts: Counter[tuple[str, JobPhase]] = Counter()

    def counts(self, tenants: Collection[str] | None) -> dict[JobPhase, int]:
        """How many jobs (an array counts once, an experiment not) are in which phase."""
        found: Counter[JobPhase] = Counter()
        for (namespace, phase), count in self._counts.items():
            if tenants is None or namespace in tenants:
                found[phase] += count
        return dict(found)

    def active(self) -> Iterable[Row]:
        """Rows of jobs that take room at a site, of all tenants: for sums only. Its own queue takes none."""
        return [row for row in self._rows.values() if row.phase.occupies and row.phase is not JobPhase.QUEUED]

    def _recount(self, old: Row | None, new: Row | None) -> None:
        if old is None and new is None:
            self._counts = Counter((row.namespace, row.phase) for row in self._rows.values() if not row.element)
        for row, by in ((old, -1), (new, 1)):
            if row is not None and not row.element:
                self._counts[row.namespace, row.phase] += by


def row_of(record: Record) -> Row:
    """The row of a job."""
    obj = record.obj
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    resources = spec.get("resources") or {}
    return Row(
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        created=metadata.get("creationTimestamp") or "",
        phase=JobPhase(status.get("phase") or "Pending"),
        intent=spec.get("intent") or "Run",
        reason=status.get("reason") or "",
        message=(status.get("message") or "")[:300],
        site=status.get("site") or "",
        started=status.get("startedAt") or "",
        finished=status.get("finishedAt") or "",
        exit_code=status.get("exitCode"),
        signal=status.get("signal") or "",
        labels=metadata.get("labels") or {},
        what=what_runs(spec)[:120],
        wants={
            "cpus": resources.get("cpus", "1"),
            "memory": resources.get("memory"),
            "tasks": resources.get("tasks", 1),
            "devices": {d["class"]: d.get("count", 1) for d in resources.get("devices") or ()},
        },
        array=status.get("array") if spec.get("array") else None,
    )


def experiment_row(record: Record) -> ExperimentRow:
    """The row of an experiment."""
    obj = record.obj
    status = obj.get("status") or {}
    runs = status.get("runs") or {}
    return ExperimentRow(
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        created=obj["metadata"].get("creationTimestamp") or "",
        phase=ExperimentPhase(status.get("phase") or "Pending"),
        message=(status.get("message") or "")[:300],
        cells=len(status.get("cells") or ()),
        ended=sum(runs.get(end) or 0 for end in ("succeeded", "failed", "cancelled")),
        runs=runs.get("total") or 0,
        started=status.get("startedAt") or "",
        finished=status.get("finishedAt") or "",
    )


def what_runs(spec: Mapping[str, Any]) -> str:
    """The command, or the first telling line of the script."""
    if spec.get("command"):
        return shlex.join(map(str, spec["command"]))
    lines = [line.strip() for line in (spec.get("script") or "")[:4000].splitlines()]
    return next((line for line in lines if line and not line.startswith("#")), "script")
