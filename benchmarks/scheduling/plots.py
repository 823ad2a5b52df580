"""Plots as SVG, written by hand: bars of cost per scenario, points of time per decision, and a gantt chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log2, log10
from pathlib import Path
from statistics import fmean

from .runs import Row, Run
from .simulating import Stint

_COLOURS = (
    "#8d99ae",
    "#457b9d",
    "#a8dadc",
    "#adb5bd",
    "#74a57f",
    "#bc8034",
    "#e9c46a",
    "#f4a261",
    "#e76f51",
    "#2a9d8f",
)
_STYLE = "text{font:12px sans-serif;fill:#333}.t{font-size:15px;font-weight:bold}.g{stroke:#ddd}"
_Box = tuple[float, float, float, float]


class _Canvas:
    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._parts = [f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>"]
        self.text(12, 22, title, kind="t")

    def text(self, x: float, y: float, what: str, anchor: str = "start", kind: str = "") -> None:
        chosen = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{chosen}>{escape(what)}</text>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, note: str = "") -> None:
        hint = f"<title>{escape(note)}</title>" if note else ""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.2):.2f}" height="{height:.2f}" fill="{colour}">'
            f"{hint}</rect>"
        )

    def line(self, points: Sequence[tuple[float, float]], colour: str = "", kind: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        paint = f'stroke="{colour}" fill="none"' if colour else f'class="{kind}"'
        self._parts.append(f'<polyline points="{path}" {paint}/>')

    def dots(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """Many points as one path; those that fall on each other are drawn once."""
        found = sorted({(round(x), round(y)) for x, y in points})
        path = "".join(f"M{x} {y}h0" for x, y in found)
        self._parts.append(
            f'<path d="{path}" stroke="{colour}" stroke-opacity="0.5" stroke-width="4" stroke-linecap="round"/>'
        )

    def boxes(self, boxes: Sequence[_Box], colour: str, note: str) -> None:
        """Many boxes of one colour as one path."""
        path = "".join(f"M{x:g} {y:g}h{wide:g}v{high:g}h-{wide:g}z" for x, y, wide, high in boxes)
        self._parts.append(f'<path d="{path}" fill="{colour}"><title>{escape(note)}</title></path>')

    def write(self, path: Path) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}">'
        path.write_text(f"{head}\n{chr(10).join(self._parts)}\n</svg>\n", encoding="utf-8")


def cost_chart(rows: Sequence[Row], path: Path) -> None:
    """Cost over the lower bound for each scenario and method, on a logarithmic scale."""
    methods = list(dict.fromkeys(row.method for row in rows))
    cells = list(dict.fromkeys((row.nodes, row.scenario) for row in rows))
    ratios = {
        (cell, name): fmean(found)
        for cell in cells
        for name in methods
        if (found := [r.cost / r.bound for r in rows if r.method == name and (r.nodes, r.scenario) == cell])
    }
    top = max(1.5, *ratios.values())
    bar, left, base, tall = 14, 60, 330, 270
    group = bar * len(methods) + 24
    canvas = _Canvas(left + group * len(cells) + 150, 380, "Cost as a multiple of the lower bound (log scale)")
    for tick in (1.0, *((1.05,) if top < 2 else ()), 1.2, 1.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0):
        if tick <= top:
            y = base - tall * log10(tick) / log10(top)
            canvas.line([(left, y), (left + group * len(cells), y)], kind="g")
            canvas.text(left - 6, y + 4, f"{tick:g}", "end")
    for number, cell in enumerate(cells):
        x = left + group * number + 12
        for index, name in enumerate(methods):
            if (ratio := ratios.get((cell, name))) is None:
                continue
            height = tall * max(0.0, log10(ratio)) / log10(top) + 1
            note = f"{name}: {ratio:.3f}"
            canvas.box(x + bar * index, base - height, bar - 2, height, _COLOURS[index % len(_COLOURS)], note)
        canvas.text(x + bar * len(methods) / 2, base + 18, f"{cell[1]}, {cell[0]}", "middle")
    for index, name in enumerate(methods):
        x, y = canvas.width - 140, 50 + 18 * index
        canvas.box(x, y - 10, 12, 12, _COLOURS[index % len(_COLOURS)])
        canvas.text(x + 18, y, name)
    canvas.write(path)


def decision_chart(runs: Sequence[Run], path: Path) -> None:
    """Time per decision against machines plus jobs, with a curve that grows as n log n."""
    points = [
        (len(run.case.instance.machines) + jobs, 1000 * seconds)
        for run in runs
        for jobs, seconds in run.outcome.timings
    ]
    widest, tallest = max(x for x, _ in points), sorted(y for _, y in points)[floor(0.99 * (len(points) - 1))] * 1.3
    canvas = _Canvas(720, 400, f"Time per decision, {runs[0].method} (ms; curve: n log n through the mean)")
    left, base, wide, tall = 60, 350, 630, 300

    def at(x: float, y: float) -> tuple[float, float]:
        return left + wide * x / widest, base - tall * min(y, tallest) / tallest

    for step in range(6):
        value = tallest * step / 5
        canvas.line([at(0, value), at(widest, value)], kind="g")
        canvas.text(left - 6, at(0, value)[1] + 4, f"{value:.1f}", "end")
        canvas.text(at(widest * step / 5, 0)[0], base + 18, f"{widest * step / 5:.0f}", "middle")
    canvas.dots([at(x, y) for x, y in points[:: ceil(len(points) / 2000)]], "#2a9d8f")
    scale = sum(y for _, y in points) / sum(x * log2(x + 1) for x, _ in points)
    canvas.line([at(x, scale * x * log2(x + 1)) for x in range(1, widest + 1, 1 + widest // 60)], colour="#e76f51")
    canvas.text(left + wide / 2, base + 38, "machines + jobs", "middle")
    canvas.write(path)


def gantt(run: Run, path: Path) -> None:
    """Which job was on which machine when; the height of a bar is its number of devices."""
    machines = run.case.instance.machines
    sizes = {kind.name: kind.devices for kind in run.case.instance.catalogue}
    size = max(sizes.values())
    unit = 4 if len(machines) * size > 160 else 6
    row = unit * size + 6
    end = max((stint.end for stint in run.outcome.stints), default=1.0)
    left, wide = 70, 900
    canvas = _Canvas(left + wide + 20, 60 + row * len(machines), f"{run.method}: {run.case.scenario} {run.case.name}")
    for number, machine in enumerate(machines):
        y = 40 + row * number
        canvas.text(left - 8, y + row / 2, machine, "end")
        canvas.line([(left, y + row - 3), (left + wide, y + row - 3)], kind="g")
    found: dict[str, list[_Box]] = {}
    for stint, lane, high in _lanes(run.outcome.stints, size):
        x, until = (round(left + wide * when / end, 1) for when in (stint.start, stint.end))
        y = 40 + row * machines.index(stint.machine) + unit * lane
        found.setdefault(stint.job, []).append((x, y, round(max(until - x, 0.2), 1), unit * high - 0.5))
    for job, boxes in found.items():
        stints = [stint for stint in run.outcome.stints if stint.job == job]
        note = f"{job}: {min(s.start for s in stints):.0f} to {max(s.end for s in stints):.0f} s"
        canvas.boxes(_merged(boxes), f"hsl({hash_of(job) % 360},55%,60%)", note)
    canvas.text(left + wide, 54 + row * len(machines), f"{end / 3600:.0f} h", "end")
    canvas.write(path)


def _lanes(stints: Sequence[Stint], size: int) -> Iterator[tuple[Stint, int, int]]:
    """Each stint with lanes of its machine: the first, and how many beside each other."""
    lanes: dict[str, list[float]] = {}
    for stint in sorted(stints, key=lambda s: (s.start, s.job)):
        mine = lanes.setdefault(stint.machine, [0.0] * size)
        free = [lane for lane, until in enumerate(mine) if until <= stint.start + 1e-6][: stint.devices]
        for lane in free:
            mine[lane] = stint.end
        for first in (lane for lane in free if lane - 1 not in free):
            yield stint, first, next(n for n in range(1, size + 1) if first + n not in free)


def _merged(boxes: Sequence[_Box]) -> list[_Box]:
    """Boxes that touch become one."""
    found: list[_Box] = []
    for x, y, wide, high in sorted(boxes, key=lambda box: (box[1], box[3], box[0])):
        if found and found[-1][1::2] == (y, high) and x - (found[-1][0] + found[-1][2]) < 0.3:
            found[-1] = (found[-1][0], y, round(max(x + wide - found[-1][0], found[-1][2]), 1), high)
        else:
            found.append((x, y, wide, high))
    return found


def hash_of(name: str) -> int:
    """The same number for the same name in every run."""
    return sum((index + 1) * 37 * ord(letter) for index, letter in enumerate(name))
