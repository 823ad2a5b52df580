"""Charts of an experiment as shapes with places: what the template draws as SVG. Pure.

Bars have the spread of their repetitions (first to third quartile); the scatter shows time against energy, with the
front of the cells that nothing else beats in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Cell = Mapping[str, Any]

MEASURES: Mapping[str, tuple[str, str]] = {
    "runTime": ("Run time", "s"),
    "energy": ("Energy", "J"),
    "energyDelay": ("Energy-delay", "J·s"),
    "peakMemory": ("Peak memory", "B"),
    "cost": ("Cost", ""),
}
MOST_BARS = 40
Size = Literal["wide", "medium", "narrow"]
SIZES: tuple[Size, ...] = ("wide", "medium", "narrow")
"""A chart is drawn once for each, because letters in it must not shrink with the window; the style shows one."""
_BARS: Mapping[Size, tuple[int, int, int, int, int]] = {
    "wide": (340, 940, 100, 28, 12),
    "medium": (260, 630, 90, 28, 12),
    "narrow": (4, 260, 86, 46, 24),
}
"""Most room for names; room for names and bars together, and for values; height of a row, and where the first is."""
_LABEL = 40
_LETTER = 6.8
"""Width of a letter in a chart."""
_TICK_ROOM = 64
"""Between two numbers at an axis."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One cell: its bar from the left, its spread, and where its row is."""

    name: str
    label: str
    """What stands at the bar: the name without what all cells share, cut to the room that there is."""
    value: float
    y: float
    length: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One cell in the scatter."""

    name: str
    time: float
    energy: float
    x: float
    y: float
    front: bool
    label: str = ""
    """Its name, where there is room for it."""
    label_x: float = 0.0
    label_y: float = 0.0
    anchor: str = "start"
    """Which end of the label is at its place."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, and what it stands for."""

    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Bars:
    """All bars of a measure. A name stands before its bar, or above it where there is little width."""

    bars: list[Bar]
    ticks: list[Tick]
    left: int
    height: int
    width: int
    left_out: int
    above: bool = False


@dataclass(frozen=True, slots=True)
class Scatter:
    """All cells that have both time and energy."""

    points: list[ChartPoint]
    front: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: int = 1040
    height: int = 400
    left: int = 84
    top: int = 16
    right: int = 1020
    bottom: int = 346
    """The frame in which the points are."""


_SCATTERS: Mapping[Size, Scatter] = {
    "wide": Scatter([], "", [], []),
    "medium": Scatter([], "", [], [], width=720, height=380, left=76, right=706, bottom=326),
    "narrow": Scatter([], "", [], [], width=350, height=330, left=58, right=340, bottom=276),
}


def cell_name(cell: Cell) -> str:
    """What distinguishes a cell: where it ran, and its parameters."""
    return ", ".join(_parts(cell).values()) or f"cell {cell.get('index', 0)}"


def _parts(cell: Cell) -> dict[str, str]:
    """Those of the name: where it ran, and its parameters."""
    parts = {key: str(cell[key]) for key in ("device", "site", "image") if cell.get(key)}
    for name, value in (cell.get("parameters") or {}).items():
        parts[f"={name}"] = f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
    return parts


def _labels(cells: Sequence[Cell], most: int) -> list[str]:
    """The names of cells beside each other: without what they share, which distinguishes none; none is longer."""
    parts = [_parts(cell) for cell in cells]
    shared = set(parts[0].items()).intersection(*(part.items() for part in parts)) if len(parts) > 1 else set()
    names = [
        ", ".join(text for part in named.items() if part not in shared for text in part[1:]) or cell_name(cell)
        for named, cell in zip(parts, cells, strict=True)
    ]
    return [name if len(name) <= most else f"{name[: most - 1]}…" for name in names]


def measures_of(cells: Sequence[Cell]) -> dict[str, tuple[str, str]]:
    """What can be compared: name in the address, title, unit."""
    found = {key: title for key, title in MEASURES.items() if any(cell.get(key) for cell in cells)}
    values = sorted({name for cell in cells for name in cell.get("values") or {}})
    return found | {f"values.{name}": (name, "") for name in values}


def spread_of(cell: Cell, measure: str) -> Mapping[str, float] | None:
    """A cell's values of a measure."""
    section, _, name = measure.partition(".")
    found = (cell.get("values") or {}).get(name) if section == "values" and name else cell.get(measure)
    return found if isinstance(found, Mapping) and isinstance(found.get("median"), int | float) else None


def bars_of(cells: Sequence[Cell], measure: str, size: Size = "wide") -> Bars:
    """The bars of a measure, in the order of the cells."""
    room, width, right, row_height, top = _BARS[size]
    there = [(cell, spread) for cell in cells if (spread := spread_of(cell, measure))]
    shown = there[:MOST_BARS]
    above = size == "narrow"
    labels = _labels([cell for cell, _ in shown], int((width + right if above else room - 14) / _LETTER))
    left = room if above else min(room, 14 + math.ceil(_LETTER * max(map(len, labels), default=0)))
    width -= left
    most = max((max(spread["median"], spread.get("high", 0)) for _, spread in shown), default=0) or 1
    ticks = _apart([Tick(left + width * value / most, value) for value in _steps(most) if value <= most])
    bars = [
        Bar(
            cell_name(cell),
            labels[row],
            spread["median"],
            top + row_height * row,
            width * max(0, spread["median"]) / most,
            left + width * max(0, spread.get("low", spread["median"])) / most,
            left + width * max(0, spread.get("high", spread["median"])) / most,
        )
        for row, (cell, spread) in enumerate(shown)
    ]
    height = top + row_height * len(bars) + 26
    return Bars(bars, ticks, left, height, left + width + right, len(there) - len(shown), above)


def scatter_of(cells: Sequence[Cell], front: Sequence[int], size: Size = "wide") -> Scatter | None:
    """Time against energy; None if no cell has both."""
    there = [
        (cell, time["median"], energy["median"])
        for cell in cells
        if (time := spread_of(cell, "runTime")) and (energy := spread_of(cell, "energy"))
    ]
    if not there:
        return None
    least_time, most_time = _span([time for _, time, _ in there])
    least_energy, most_energy = _span([energy for _, _, energy in there])
    frame = _SCATTERS[size]
    left, top, right, bottom = frame.left, frame.top, frame.right, frame.bottom

    def across(time: float) -> float:
        return left + (right - left) * (time - least_time) / (most_time - least_time)

    def up(energy: float) -> float:
        return bottom - (bottom - top) * (energy - least_energy) / (most_energy - least_energy)

    labels = _labels([cell for cell, _, _ in there], _LABEL)
    points = [
        ChartPoint(cell_name(cell), time, energy, across(time), up(energy), cell.get("index") in front)
        for cell, time, energy in there
    ]
    best = sorted((point for point in points if point.front), key=lambda point: point.x)
    line = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in best)
    x_ticks = _apart([Tick(across(value), value) for value in _between(least_time, most_time)])
    y_ticks = [Tick(up(value), value) for value in _between(least_energy, most_energy)]
    return replace(frame, points=_labelled(points, labels, frame), front=line, x_ticks=x_ticks, y_ticks=y_ticks)


def _apart(ticks: list[Tick]) -> list[Tick]:
    """As many as have room for their numbers."""
    step = 1
    while len(ticks) > 2 and step < len(ticks) and abs(ticks[step].at - ticks[0].at) < _TICK_ROOM:
        step += 1
    return ticks[::step]


Box = tuple[float, float, float, float]


def _labelled(points: Sequence[ChartPoint], labels: Sequence[str], frame: Scatter) -> list[ChartPoint]:
    """The points, with names where they cover neither points nor other names; the front is served first."""
    taken: list[Box] = [(p.x - 7, p.y - 7, p.x + 7, p.y + 7) for p in points]
    named: dict[int, ChartPoint] = {}
    for number in sorted(range(len(points)), key=lambda n: not points[n].front):
        point, label = points[number], labels[number]
        for x, y, anchor, box in _places(point, len(label) * _LETTER):
            inside = box[0] >= frame.left and box[2] <= frame.right and box[1] >= 0 and box[3] <= frame.bottom
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                point = replace(point, label=label, label_x=x, label_y=y, anchor=anchor)
                break
        named[number] = point
    return [named[number] for number in range(len(points))]


def _places(point: ChartPoint, long: float) -> list[tuple[float, float, str, Box]]:
    """Where a name of this length may stand: right, left, above or below its point."""
    x, y = point.x, point.y
    return [
        (x + 11, y + 4, "start", (x + 9, y - 8, x + 11 + long, y + 8)),
        (x - 11, y + 4, "end", (x - 11 - long, y - 8, x - 9, y + 8)),
        (x, y - 12, "middle", (x - long / 2, y - 24, x + long / 2, y - 8)),
        (x, y + 21, "middle", (x - long / 2, y + 9, x + long / 2, y + 25)),
    ]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def lacks(status: Mapping[str, Any], measure: str) -> list[str]:
    """What a total over all runs does not contain, in words; empty if it is whole."""
    cells, runs = status.get("cells") or [], status.get("runs") or {}
    known = sum(int(spread.get("count") or 0) for cell in cells if (spread := spread_of(cell, measure)))
    succeeded, active = int(runs.get("succeeded") or 0), int(runs.get("active") or 0)
    others = int(runs.get("failed") or 0) + int(runs.get("cancelled") or 0)
    missing = max(0, succeeded - known)
    found = []
    if missing:
        found.append(f"{missing} of {succeeded} successful runs {'has' if missing == 1 else 'have'} no measurement")
    if others:
        found.append(f"{others} failed or cancelled {'run counts' if others == 1 else 'runs count'} as far as measured")
    if active:
        found.append(f"{active} {'run is' if active == 1 else 'runs are'} still active")
    if measure == "energy" and any(cell.get("energySource") == "estimated" for cell in cells):
        found.append("partly estimated")
    return found


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From where to where an axis goes: from 0, unless all values are close together and far from it."""
    low, high = min(values), max(values)
    if low > 0.6 * high and len(values) > 1 and high > low:
        return max(0.0, low - (high - low) * 0.3), high + (high - low) * 0.3
    return 0.0, high * 1.1 or 1.0


def _between(low: float, high: float) -> list[float]:
    """Round numbers between two."""
    steps = _steps(high - low)
    step = steps[1] if len(steps) > 1 else high - low
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, int(high / step + 1e-9) + 1)]


def _steps(most: float) -> list[float]:
    """Round numbers from 0 to about `most`, four to eight of them."""
    if not math.isfinite(most) or most <= 0:
        return [0.0]
    size = 10.0 ** math.floor(math.log10(most / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if most / (size * factor) <= 7)
    return [step * number for number in range(int(most / step) + 1)]
