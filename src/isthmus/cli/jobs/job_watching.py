"""`isthmus jobs --watch`: the rows that `isthmus jobs` shows, then a row for every change.

Rows come one by one, so the widths are settled with the first ones: what these need, and what later ones are likely
to. On a terminal they fit its width, and what is longer is cut; elsewhere nothing is.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from isthmus.cli.columns import columns_of
from isthmus.cli.failures import say
from isthmus.cli.options import Format
from isthmus.cli.tables import TableColumn, birth, cut, fitted, one_line, plain_width
from isthmus.client.places import JOBS
from isthmus.client.requests import Object
from isthmus.client.resuming import WatchCursor, WatchEvent

from .jobs import submitted_by

if TYPE_CHECKING:
    from isthmus.client.sync import Client

_LIKELY = {"NAME": 24, "PHASE": 9, "SITE": 8, "EXIT": 4, "TIME": 6, "AGE": 4, "MESSAGE": 24}


def watch_jobs(
    client: Client,
    labels: str | None,
    fields: str | None,
    limit: int,
    everywhere: bool,
    form: Format,
    user: str | None = None,
) -> None:
    """Until somebody ends it; of one user, if one is named."""
    home = None if everywhere else client.namespace()
    rows = Rows([c for c in columns_of("Job", everywhere) if form is Format.WIDE or not c.wide])
    cursor = _Newest(home, labels, fields, limit, user)
    for event in client.read_watch(cursor):
        if not submitted_by(event.object, user):
            continue
        if form in (Format.JSON, Format.YAML):
            sys.stdout.write(json.dumps({"type": event.type, "object": event.object}, ensure_ascii=False) + "\n")
        elif form is Format.NAME:
            sys.stdout.write(f"job/{event.object['metadata']['name']}\n")
        else:
            sys.stdout.write(rows.line(event, cursor.first))
        sys.stdout.flush()


class _Newest(WatchCursor):
    """A watch that begins with the newest jobs only, the oldest of them first."""

    def __init__(
        self, home: str | None, labels: str | None, fields: str | None, limit: int, user: str | None = None
    ) -> None:
        super().__init__(JOBS, home, labels, fields)
        self._limit, self._user = limit, user
        self.first: list[Object] | None = None
        """What the watch began with."""

    def listed(self, items: Iterable[Object], version: str) -> list[WatchEvent]:
        """The first list is cut; a later one, after a gap, says only what changed."""
        events = sorted(super().listed(items, version), key=lambda event: birth(event.object))
        if self.first is None:
            events = [event for event in events if submitted_by(event.object, self._user)]
            events = events[-self._limit :] if self._limit else events
            self.first = [event.object for event in events]
            if not events:
                say("there are no jobs yet; each change is shown here")
        return events


class Rows:
    """Lines of a table whose rows are not known beforehand."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self._columns = columns
        self._widths: list[int] | None = None

    def line(self, event: WatchEvent, first: Sequence[Object] | None) -> str:
        """The row of a change; before the first one, the headings."""
        head = ""
        if self._widths is None:
            self._widths = self._settle(first or [event.object])
            head = self._joined([column.title for column in self._columns])
        cells = [one_line(column.value(event.object)) or "-" for column in self._columns]
        if event.type == "DELETED":
            cells[-1] = "deleted"
        return head + self._joined(cells)

    def _settle(self, first: Sequence[Object]) -> list[int]:
        widths = [
            max(_LIKELY.get(c.title, 0), len(c.title), *(plain_width(one_line(c.value(job))) for job in first))
            for c in self._columns
        ]
        if not sys.stdout.isatty():
            return widths
        room = shutil.get_terminal_size().columns - 2 * (len(widths) - 1)
        found = fitted(widths, room)
        found[-1] += max(0, room - sum(found))
        return found

    def _joined(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        if not sys.stdout.isatty():
            padded = (cell + " " * (width - plain_width(cell)) for cell, width in zip(cells, self._widths, strict=True))
        else:
            padded = (cut(cell, width) for cell, width in zip(cells, self._widths, strict=True))
        return "  ".join(padded).rstrip() + "\n"
