"""Plots of a comparison as SVG, for the report: bars with spread, and time against energy with the Pareto front. Pure.

Colours come from the page's variables, so that one drawing is right in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

WIDTH = 760
_LEFT, _RIGHT, _ROW = 190, 120, 30


class ReportBar(NamedTuple):
    """One bar: its name, the median, the quartiles, and its number written out."""

    title: str
    median: float
    low: float
    high: float
    text: str
    kind: str = ""


class Spot(NamedTuple):
    """One point of the scatter: medians, and quartiles of both."""

    title: str
    x: float
    y: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    front: bool
    wrong: bool = False


def bars(title: str, items: Sequence[ReportBar]) -> str:
    """Horizontal bars from zero, each with its quartiles as a whisker."""
    height = len(items) * _ROW + 16
    most = max((max(item.high, item.median) for item in items), default=0) or 1.0
    scale = (WIDTH - _LEFT - _RIGHT) / most
    parts = [f'<line class="axis" x1="{_LEFT}" y1="4" x2="{_LEFT}" y2="{height - 8}"/>']
    for number, item in enumerate(items):
        y = 8 + number * _ROW
        middle = y + _ROW / 2 - 3
        reported = f"{item.title}: {item.text}"
        parts.append(
            f'<g class="bar {item.kind}"><title>{escape(reported)}</title>'
            f'<text class="name" x="{_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">'
            f"{escape(_cut(item.title))}</text>"
            f'<rect x="{_LEFT}" y="{y}" width="{max(1.0, item.median * scale):.1f}" height="{_ROW - 8}" rx="2"/>'
            f"{_whisker(_LEFT + item.low * scale, _LEFT + item.high * scale, middle)}"
            f'<text class="value" x="{_LEFT + max(item.high, item.median) * scale + 8:.1f}" y="{middle + 4:.1f}">'
            f"{escape(item.text)}</text></g>"
        )
    return _svg(title, height, parts)


def _whisker(low: float, high: float, y: float) -> str:
    if high - low < 0.5:
        return ""
    ends = "".join(f'<line x1="{x:.1f}" y1="{y - 5:.1f}" x2="{x:.1f}" y2="{y + 5:.1f}"/>' for x in (low, high))
    return f'<g class="whisker"><line x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>{ends}</g>'


def scatter(title: str, spots: Sequence[Spot], across: str, up: str) -> str:
    """Points with their quartiles as crosses; those of the front are joined by steps."""
    height, left, bottom, top, right = 420, 70, 50, 16, 20
    most_x = max((max(s.x, s.xs[1]) for s in spots), default=1.0) * 1.12 or 1.0
    most_y = max((max(s.y, s.ys[1]) for s in spots), default=1.0) * 1.12 or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / most_x * (WIDTH - left - right), height - bottom - y / most_y * (height - bottom - top)

    parts = []
    for tick in ticks(most_x):
        x, _ = at(tick, 0)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{tick:g}</text>')
    for tick in ticks(most_y):
        _, y = at(0, tick)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text x="{(WIDTH + left) / 2}" y="{height - 10}" text-anchor="middle">{escape(across)}</text>')
    turned = f"rotate(-90 16 {height / 2})"
    parts.append(f'<text x="16" y="{height / 2}" text-anchor="middle" transform="{turned}">{escape(up)}</text>')
    front = sorted((s.x, s.y) for s in spots if s.front)
    if len(front) > 1:
        path = [at(*front[0])]
        for (_, y0), (x1, y1) in pairwise(front):
            path += [at(x1, y0), at(x1, y1)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        parts.append(f'<polyline class="front" points="{line}"/>')
    labelled = len(spots) <= 40
    for spot in spots:
        x, y = at(spot.x, spot.y)
        (x0, _), (x1, _) = at(spot.xs[0], 0), at(spot.xs[1], 0)
        (_, y0), (_, y1) = at(0, spot.ys[0]), at(0, spot.ys[1])
        kind = "wrong" if spot.wrong else "best" if spot.front else ""
        reported = f"{spot.title}: {spot.x:.4g} s, {spot.y:.4g} J" + (", on the front" if spot.front else "")
        end = x > WIDTH * 0.75
        name = (
            f'<text class="name" x="{x - 9 if end else x + 9:.1f}" y="{y - 8:.1f}" '
            f'text-anchor="{"end" if end else "start"}">{escape(_cut(spot.title))}</text>'
        )
        parts.append(
            f'<g class="spot {kind}"><title>{escape(reported)}</title>'
            f'<g class="whisker"><line x1="{x0:.1f}" y1="{y:.1f}" x2="{x1:.1f}" y2="{y:.1f}"/>'
            f'<line x1="{x:.1f}" y1="{y0:.1f}" x2="{x:.1f}" y2="{y1:.1f}"/></g>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>{name if labelled else ""}</g>'
        )
    return _svg(title, height, parts)


def ticks(most: float) -> list[float]:
    """About five round numbers from 0 on."""
    raw = most / 5
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    return [number * step for number in range(math.floor(most / step) + 1)]


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def _cut(text: str) -> str:
    return text if len(text) <= 28 else text[:27] + "…"
