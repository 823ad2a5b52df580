"""Reading audit logs: the newest entries that fit a question, of all control planes, and the text of one log.

Files are read from their ends, so that what happened lately is found at once however long the log is.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .audit_log import files_of
from .chaining import read_line

_BLOCK = 256 * 1024
MATCHED = ("user", "credential", "address", "verb", "resource", "namespace", "name", "outcome")


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """Which entries are wanted."""

    limit: int = 1000
    since: str = ""
    until: str = ""
    """Times, as entries have them."""
    fields: Mapping[str, str] | None = None
    """What these fields must be."""

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is one of them, going by its fields."""
        return all(entry.get(name) == value for name, value in (self.fields or {}).items())


def logs_in(folder: Path) -> list[str]:
    """The names of the logs of all control planes."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def search(folder: Path, question: AuditQuestion) -> list[dict[str, Any]]:
    """The newest entries that fit, the oldest of them first."""
    every = [_backwards(folder / name, name) for name in logs_in(folder)]
    found: list[dict[str, Any]] = []
    for entry in heapq.merge(*every, key=lambda e: str(e.get("time", "")), reverse=True):
        moment = str(entry.get("time", ""))
        if question.since and moment < question.since:
            break
        if (question.until and moment >= question.until) or not question.fits(entry):
            continue
        found.append(entry)
        if len(found) >= question.limit:
            break
    return found[::-1]


def text_of(log: Path, first: int, offset: int, most: int) -> tuple[str, int, int] | None:
    """Whole lines of the file that begins with an entry, from an offset, and where to go on; None: there are no more.

    What is not ASCII, which no line has, is shown as `?`, so that its hash is wrong.
    """
    files = files_of(log)
    numbers = [int(path.stem) for path in files]
    if first not in numbers:
        first, offset = next((n for n in numbers if n > first), -1), 0
        if first < 0:
            return None
    index = numbers.index(first)
    with files[index].open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if offset >= size:
            return text_of(log, numbers[index + 1], 0, most) if index + 1 < len(files) else None
        file.seek(offset)
        data = file.read(most)
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:  # a line that does not end: all that is there of it
        whole = data
    return whole.decode("ascii", "replace").replace("\ufffd", "?"), first, offset + len(whole)


def _backwards(log: Path, name: str) -> Iterator[dict[str, Any]]:
    for path in reversed(files_of(log)):
        try:
            for line in _lines_backwards(path):
                if (found := read_line(line)) is not None:
                    yield {"log": name, **found[2]}
        except FileNotFoundError:  # the oldest was removed meanwhile
            return


def _lines_backwards(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position > 0:
            start = max(0, position - _BLOCK)
            file.seek(start)
            lines = (file.read(position - start) + rest).split(b"\n")
            rest, position = lines[0], start
            yield from reversed(lines[1:])
        yield rest
