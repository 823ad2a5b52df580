"""Results as people and programs read them: tables, JSON, YAML, names.

On a terminal a table has colours and is cut to the width with an ellipsis, never wrapped. Elsewhere it is plain
text with aligned columns and whole values, so that grep and awk see what is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.quantities import format_bytes
from isthmus.client.requests import Object

from .options import Format
from .printing import printable, printable_json

_NARROWEST = 6
PHASE_COLOURS = {
    "Succeeded": "green",
    "Ready": "green",
    "Active": "green",
    "Running": "cyan",
    "Finishing": "cyan",
    "Placed": "blue",
    "Queued": "blue",
    "Pending": "yellow",
    "Unknown": "yellow",
    "Suspended": "yellow",
    "Failed": "red",
    "Unreachable": "red",
    "Cancelled": "magenta",
    "Disabled": "magenta",
    "Terminating": "magenta",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
}


class TableColumn(NamedTuple):
    """One column: its heading, how to find the value, and whether it shows only when there is room to ask for."""

    title: str
    value: Callable[[Object], str]
    wide: bool = False


def at(*path: str) -> Callable[[Object], str]:
    """A value by its path; empty when it is not there."""

    def find(obj: Object) -> str:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return "" if value is None else str(value)

    return find


def age(*path: str) -> Callable[[Object], str]:
    """How long ago the time at a path is: `5s`, `3m`, `2h`, `4d`."""
    find = at(*path)

    def ago(obj: Object) -> str:
        text = find(obj)
        return relative(parse_timestamp(text), utcnow()) if text else ""

    return ago


def relative(then: datetime, now: datetime) -> str:
    """The time between, in its largest unit (two for small ones), as kubectl writes it."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size, up_to in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < up_to:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def birth(obj: Object) -> tuple[str, str]:
    """What sorts objects by their age: uids do so within a second."""
    return str(obj["metadata"].get("creationTimestamp") or ""), str(obj["metadata"].get("uid"))


def show(objects: Sequence[Object], columns: Sequence[TableColumn], output: Format, *, single: bool = False) -> None:
    """Write objects in the format asked for."""
    if output in (Format.JSON, Format.YAML):
        whole: Any = objects[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        write(whole, output)
    elif output is Format.NAME:
        for obj in objects:
            sys.stdout.write(f"{str(obj.get('kind', '')).lower()}/{obj['metadata']['name']}\n")
    else:
        shown = [column for column in columns if output is Format.WIDE or not column.wide]
        table([c.title for c in shown], [[c.value(obj) for c in shown] for obj in objects])


def write(value: Any, output: Format) -> None:
    """Write any value as JSON or YAML."""
    if output is Format.YAML:
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        if printable(text) != text:  # what reorders text is left as it is by the writer of YAML
            text = yaml.safe_dump(value, sort_keys=False)
        sys.stdout.write(text)
    else:
        sys.stdout.write(printable_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")


def write_names(names: Iterable[str]) -> None:
    """One name in each line: as it is for programs, without what a terminal would obey for people."""
    shown = printable if sys.stdout.isatty() else str
    sys.stdout.write("".join(f"{shown(name)}\n" for name in names))


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table."""
    clean = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(titles, clean)
    else:
        sys.stdout.write("".join(line + "\n" for line in plain_table(titles, clean)))


def plain_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Lines of aligned text. An empty cell is a dash, so that columns can be counted."""
    filled = [list(titles), *([cell or "-" for cell in row] for row in rows)]
    widths = [max(plain_width(row[i]) for row in filled) for i in range(len(titles))]
    for row in filled:
        padded = (cell + " " * (width - plain_width(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def plain_width(text: str) -> int:
    """Columns on a terminal; only a line that is not ASCII needs the slow way."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def size(count: float) -> str:
    """Bytes with their unit: 15B, 1.5KiB."""
    return f"{format_bytes(count)}B"


def counted(count: float | str, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {word}" if str(count) == "1" else f"{count} {word}s"


def one_line(cell: str) -> str:
    """A cell without line breaks and without control characters: what a job calls itself must not move the cursor."""
    return "".join(c if c.isprintable() else " " for c in cell) if not cell.isprintable() else cell


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Write what there is to say of one object, a line for each fact that has a value."""
    for title, value in facts:
        if value:
            sys.stdout.write(f"{title + ':':<16}{one_line(value)}\n")


def cut(cell: str, width: int) -> str:
    """The cell in exactly this width, its end cut off with an ellipsis when it must be."""
    while plain_width(cell) > width:
        cell = cell.rstrip("…")[:-1] + "…"
    return cell + " " * (width - plain_width(cell))


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest columns give way first, none below what makes it readable."""
    found = list(widths)
    while sum(found) > room and max(found) > _NARROWEST:
        found[found.index(max(found))] -= 1
    return found


def _rich_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    natural = [max(plain_width(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    widths = fitted(natural, console.width - 2 * (len(titles) - 1))
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title, width in zip(titles, widths, strict=True):
        view.add_column(title, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        view.add_row(*(Text(cell, style=PHASE_COLOURS.get(cell, "")) for cell in row))
    console.print(view)
