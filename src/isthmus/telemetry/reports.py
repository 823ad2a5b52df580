"""Values that a program reports itself: lines `isthmus: {"accuracy": 0.91}` of its output. Pure.

A line counts wherever it stands, as often as it comes; the last value of a name is its result. `step` says how far the
program is and is no result. What is no JSON object, or no number, is the program's own business and is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from isthmus.resources.work.comparisons import LARGEST

STEP = "step"
MAX_LINE = 16_384
MAX_NAMES = 64
_MARK = b"isthmus:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")

Report = dict[str, float]


def parse_line(line: bytes) -> Report:
    """The numbers that one line reports; empty if it reports none."""
    text = line.lstrip()
    if not text.startswith(_MARK) or len(text) > MAX_LINE:
        return {}
    try:
        found = orjson.loads(text[len(_MARK) :])
    except orjson.JSONDecodeError:
        return {}
    return numbers(found) if isinstance(found, dict) else {}


def numbers(found: Mapping[str, Any]) -> Report:
    """The named numbers of a JSON object; true counts 1, and what is not finite, or too large to count with, does not
    count."""
    report: Report = {}
    for name, value in found.items():
        if isinstance(value, int | float) and _NAME.fullmatch(name) and len(report) < MAX_NAMES:
            try:
                number = float(value)
            except OverflowError:
                continue
            if abs(number) <= LARGEST:
                report[name] = number
    return report


@dataclass(slots=True)
class Reader:
    """Finds reports in output that comes in pieces."""

    _rest: bytes = field(default=b"")

    def feed(self, data: bytes) -> list[Report]:
        """The reports of the lines that are complete now."""
        if _MARK not in data and not self._rest:
            cut = data.rfind(b"\n") + 1
            self._keep(data[cut:])
            return []
        *lines, rest = (self._rest + data).split(b"\n")
        self._keep(rest)
        return [report for line in lines if (report := parse_line(line))]

    def finish(self) -> list[Report]:
        """The report of a last line that was never ended."""
        report = parse_line(self._rest)
        self._rest = b""
        return [report] if report else []

    def _keep(self, rest: bytes) -> None:
        # A line longer than any report is not one: its beginning is enough to know.
        self._rest = rest if len(rest) <= MAX_LINE else rest[: MAX_LINE + 1]


def last_values(reports: Iterable[Report]) -> Report:
    """The last value of each name."""
    found: Report = {}
    for report in reports:
        for name, value in report.items():
            if name != STEP and (name in found or len(found) < MAX_NAMES):
                found[name] = value
    return found


def steps_of(reports: Iterable[Report], name: str) -> dict[int, float]:
    """The values of a name by step; where no step is named, they are counted."""
    found: dict[int, float] = {}
    for report in reports:
        if name in report:
            step = report.get(STEP, len(found))
            found[int(step)] = report[name]
    return found
