"""Charts of an experiment as shapes with places: what the template draws as SVG. Pure.

Bars have the spread of their repetitions (first to third quartile); the scatter shows time against energy, with the
front of the cells that nothing else beats in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Cell = Mapping[str, Any]

MEASURES: Mapping[str, tuple[str, str]] = {
    "runTime": ("Run time", "s"),
    "energy": ("Energy", "J"),
    "energyDelay": ("Energy-delay", "J·s"),
    "peakMemory": ("Peak memory", "B"),
    "cost": ("Cost", ""),
}
MOST_BARS = 40
_LABEL = 26
_ROW = 28
_LEFT, _WIDTH, _RIGHT = 190, 720, 90


@dataclass(frozen=True, slots=True)
class Bar:
    """One cell: its bar from the left, its spread, and where its row is."""

    name: str
    value: float
    y: float
    length: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """One cell in the scatter."""

    name: str
    time: float
    energy: float
    x: float
    y: float
    front: bool
    label: str = ""
    """Its name, where there is room for it."""
    after: bool = True
    """Whether the label stands to its right."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, and what it stands for."""

    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Bars:
    """All bars of a measure."""

    bars: list[Bar]
    ticks: list[Tick]
    left: int
    height: int
    width: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """All cells that have both time and energy."""

    points: list[Point]
    front: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: int = 560
    height: int = 340


def cell_name(cell: Cell) -> str:
    """What distinguishes a cell: where it ran, and its parameters."""
    parts = [str(cell[key]) for key in ("device", "site", "image") if cell.get(key)]
    values = (cell.get("parameters") or {}).items()
    parts += [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in values]
    return ", ".join(parts) or f"cell {cell.get('index', 0)}"


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


def bars_of(cells: Sequence[Cell], measure: str) -> Bars:
    """The bars of a measure, in the order of the cells."""
    there = [(cell, spread) for cell in cells if (spread := spread_of(cell, measure))]
    shown = there[:MOST_BARS]
    most = max((max(spread["median"], spread.get("high", 0)) for _, spread in shown), default=0) or 1
    ticks = [Tick(_LEFT + _WIDTH * value / most, value) for value in _steps(most) if value <= most]
    bars = [
        Bar(
            cell_name(cell),
            spread["median"],
            12 + _ROW * row,
            _WIDTH * max(0, spread["median"]) / most,
            _LEFT + _WIDTH * max(0, spread.get("low", spread["median"])) / most,
            _LEFT + _WIDTH * max(0, spread.get("high", spread["median"])) / most,
        )
        for row, (cell, spread) in enumerate(shown)
    ]
    height = 12 + _ROW * len(bars) + 26
    return Bars(bars, ticks, _LEFT, height, _LEFT + _WIDTH + _RIGHT, len(there) - len(shown))


def scatter_of(cells: Sequence[Cell], front: Sequence[int]) -> Scatter | None:
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
    frame = Scatter([], "", [], [])
    left, top, right, bottom = 64, 14, frame.width - 16, frame.height - 40

    def across(time: float) -> float:
        return left + (right - left) * (time - least_time) / (most_time - least_time)

    def up(energy: float) -> float:
        return bottom - (bottom - top) * (energy - least_energy) / (most_energy - least_energy)

    points = [
        Point(cell_name(cell), time, energy, across(time), up(energy), cell.get("index") in front)
        for cell, time, energy in there
    ]
    best = sorted((point for point in points if point.front), key=lambda point: point.x)
    line = " ".join(f"{point.x:.1f},{point.y:.1f}" for point in best)
    x_ticks = [Tick(across(value), value) for value in _between(least_time, most_time)]
    y_ticks = [Tick(up(value), value) for value in _between(least_energy, most_energy)]
    return Scatter(_labelled(points, frame.width), line, x_ticks, y_ticks)


def _labelled(points: Sequence[Point], width: int) -> list[Point]:
    """The points, with names at those where no other name stands; the front is served first."""
    taken: list[tuple[float, float, float, float]] = []
    named: dict[int, Point] = {}
    for number in sorted(range(len(points)), key=lambda n: not points[n].front):
        point = points[number]
        label = point.name if len(point.name) <= _LABEL else f"{point.name[: _LABEL - 1]}…"
        long, after = len(label) * 6.6, point.x <= width * 0.6
        begin = point.x + 10 if after else point.x - 10 - long
        box = (begin, point.y - 19, begin + long, point.y - 6)
        if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            label = ""
        else:
            taken.append(box)
        named[number] = replace(point, label=label, after=after)
    return [named[number] for number in range(len(points))]


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
