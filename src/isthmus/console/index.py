"""Indexes of jobs and experiments: a small row for each, newest first; a page of them costs the same among any number.

The store lists by name; people want the newest, and search by a part of the name. A feed keeps the rows equal to the
store from the first time that somebody opens the console. Who may see which rows is decided by whoever asks: every
question names the tenants.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import textwrap
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from isthmus._kit.reasons import read_reasons
from isthmus.resources.experiments import EXPERIMENT_LABEL
from isthmus.resources.frame.selectors import EVERYTHING, Selector
from isthmus.resources.frame.states import ExperimentPhase, JobPhase
from isthmus.resources.jobs import ARRAY_LABEL
from isthmus.store.base import Change, EventType, Key, Record

SLICE = 5000
"""Rows looked at before others get a turn."""
SHOWN = 160
"""Characters of a reason in a list."""
Place = tuple[str, str]
"""Where a row belongs among the others: when it was made, and its uid."""


class Ordered(Protocol):
    """What every row has."""

    @property
    def namespace(self) -> str:
        """Whose it is."""
        ...

    @property
    def phase(self) -> JobPhase | ExperimentPhase:
        """Where it is on its way."""
        ...

    @property
    def element(self) -> bool:
        """Whether something else made it, and counts in its place."""
        ...

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
class JobRow:
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
    owner: str = ""

    @property
    def order(self) -> Place:
        """Where it belongs among the others."""
        return (self.created, self.uid)

    @property
    def element(self) -> bool:
        """Whether an array or an experiment made it."""
        return ARRAY_LABEL in self.labels or EXPERIMENT_LABEL in self.labels

    @property
    def label(self) -> str:
        """Of what an array is made of."""
        return ARRAY_LABEL if self.array is not None else ""

    @property
    def parts(self) -> int:
        """How many elements an array has."""
        return int((self.array or {}).get("total") or 0)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows. `tenants` None means all."""

    tenants: Collection[str] | None
    phases: Collection[str] = ()
    text: str = ""
    site: str = ""
    labels: Selector = EVERYTHING
    elements: bool = False
    owner: str = ""

    def __call__(self, row: JobRow | ExperimentRow) -> bool:
        """Whether a row is wanted. Phases are compared by their names, which both kinds share."""
        return (
            (self.tenants is None or row.namespace in self.tenants)
            and (not self.phases or row.phase.value in self.phases)
            and (self.elements or not row.element)
            and (not self.owner or row.owner == self.owner)
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
    failed: int = 0
    intent: str = "Run"
    reason: str = ""
    what: str = ""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    site: str = ""
    element: bool = False
    array: None = None
    signal: str = ""
    exit_code: int | None = None

    @property
    def order(self) -> Place:
        """Where it belongs among the others."""
        return (self.created, self.uid)

    @property
    def label(self) -> str:
        """Of its runs."""
        return EXPERIMENT_LABEL

    @property
    def parts(self) -> int:
        """How many runs it has."""
        return self.runs


@dataclass(slots=True)
class Index(Generic[R]):
    """All objects of a kind, in rows."""

    reported: Callable[[Key | None], None]
    """Called after every change, with the object, or with None when anything may have changed."""
    row_of: Callable[[Record], R]
    _rows: dict[str, R] = field(default_factory=dict)
    _order: list[Place] = field(default_factory=list)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

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
        self.reported(None)

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
        self.reported(change.record.key)

    def counts(self, tenants: Collection[str] | None) -> dict[str, int]:
        """How many are in which phase; what an array or an experiment made counts there only."""
        found: Counter[str] = Counter()
        for (namespace, phase), count in self._counts.items():
            if tenants is None or namespace in tenants:
                found[phase] += count
        return dict(found)

    def _recount(self, old: R | None, new: R | None) -> None:
        """A row became another; None and None: all did."""
        if old is None and new is None:
            self._counts = Counter((row.namespace, row.phase.value) for row in self._rows.values() if not row.element)
        for row, by in ((old, -1), (new, 1)):
            if row is not None and not row.element:
                self._counts[row.namespace, row.phase.value] += by

    async def page(
        self, wanted: Callable[[R], bool], limit: int, before: Place | None = None, since: Place | None = None
    ) -> tuple[list[R], Place | None]:
        """The newest rows that are wanted and older than `before`, and where to go on if there are more.

        Rows older than `since` are not looked at.
        """
        order = self._order
        found: list[R] = []
        at = bisect_left(order, before) if before else len(order)
        seen = 0
        first = bisect_left(order, since) if since else 0
        while at > first:
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


class JobTable(Index[JobRow]):
    """All jobs."""

    def __init__(self, reported: Callable[[Key | None], None]) -> None:
        super().__init__(reported, row_of)

    def active(self) -> Iterable[JobRow]:
        """Rows of jobs that take room at a site, of all tenants: for sums only. Its own queue takes none."""
        return [row for row in self._rows.values() if row.phase.occupies and row.phase is not JobPhase.QUEUED]


def row_of(record: Record) -> JobRow:
    """The row of a job."""
    obj = record.obj
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    resources = spec.get("resources") or {}
    return JobRow(
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        created=metadata.get("creationTimestamp") or "",
        phase=JobPhase(status.get("phase") or "Pending"),
        intent=spec.get("intent") or "Run",
        reason=status.get("reason") or "",
        message=_headline(status),
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
        array=(status.get("array") or {}) if spec.get("array") else None,
        owner=status.get("submittedBy") or status.get("member") or "",
    )


def experiment_row(record: Record) -> ExperimentRow:
    """The row of an experiment."""
    obj = record.obj
    status = obj.get("status") or {}
    runs = status.get("runs") or {}
    spec = obj.get("spec") or {}
    return ExperimentRow(
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        created=obj["metadata"].get("creationTimestamp") or "",
        phase=ExperimentPhase(status.get("phase") or "Pending"),
        message=_headline(status),
        cells=len(status.get("cells") or ()),
        ended=sum(runs.get(end) or 0 for end in ("succeeded", "failed", "cancelled")),
        runs=runs.get("total") or 0,
        started=status.get("startedAt") or "",
        finished=status.get("finishedAt") or "",
        failed=runs.get("failed") or 0,
        intent=spec.get("intent") or "Run",
        reason=status.get("reason") or "",
        what=what_runs(spec.get("template") or {})[:120],
        owner=status.get("submittedBy") or status.get("member") or "",
        labels=obj["metadata"].get("labels") or {},
    )


def _headline(status: Mapping[str, Any]) -> str:
    """What a list says of the reason: its headline, cut between words."""
    text = str(status.get("message") or "")[:2000]
    if (status.get("phase") or "Pending") in (JobPhase.PENDING, JobPhase.QUEUED):
        text = read_reasons(text).headline
    return textwrap.shorten(text, SHOWN, placeholder=" …") if len(text) > SHOWN else text


def what_runs(spec: Mapping[str, Any]) -> str:
    """The command, or the first line of the script that says something."""
    if spec.get("command"):
        return " ".join(_quoted(str(word)) for word in spec["command"])
    lines = [line.strip() for line in (spec.get("script") or "")[:4000].splitlines()]
    return next((line for line in lines if line and not line.startswith("#")), "script")


def _quoted(word: str) -> str:
    """A word as a person would quote it: a text with apostrophes stands between quotation marks."""
    return f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word)
