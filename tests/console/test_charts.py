"""What charts draw and what totals lack."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.console.charts import SIZES, ChartPoint, bars_of, lacks, scatter_of

AMOUNTS = st.floats(min_value=0.001, max_value=1e6)


def cell(index: int, time: float, energy: float) -> dict[str, Any]:
    def spread(value: float) -> dict[str, float]:
        return {"median": value, "low": value, "high": value, "min": value, "max": value, "count": 3}

    name = f"device-{index}"
    return {"index": index, "device": name, "parameters": {}, "runTime": spread(time), "energy": spread(energy)}


def box(point: ChartPoint) -> tuple[float, float, float, float]:
    """Where the label of a point is."""
    long = len(point.label) * 6.8
    left = point.label_x - {"start": 0.0, "middle": long / 2, "end": long}[point.anchor]
    return left, point.label_y - 11, left + long, point.label_y + 3


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=25))
def test_labels_cover_neither_labels_nor_points(measured: list[tuple[float, float]]) -> None:
    cells = [cell(number, *pair) for number, pair in enumerate(measured)]
    for size in SIZES:
        drawn = scatter_of(cells, [0], size)
        assert drawn is not None
        named = [point for point in drawn.points if point.label]
        for one, other in combinations(named, 2):
            a, b = box(one), box(other)
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
        for one in named:
            a = box(one)
            assert all(not (a[0] < p.x < a[2] and a[1] < p.y < a[3]) for p in drawn.points)
            assert a[0] >= 0
            assert a[2] <= drawn.width


def test_the_scatter_uses_the_width() -> None:
    drawn = scatter_of([cell(0, 1, 1), cell(1, 10, 10)], [])
    assert drawn is not None
    assert max(p.x for p in drawn.points) - min(p.x for p in drawn.points) > 0.7 * drawn.width
    assert drawn.width > 2 * drawn.height


def test_numbers_at_an_axis_have_room() -> None:
    cells = [cell(number, 1.1**number, 1) for number in range(20)]
    for size in SIZES:
        ticks = bars_of(cells, "runTime", size).ticks
        assert all(b.at - a.at >= 60 for a, b in pairwise(ticks))


def test_names_leave_out_what_all_cells_share_and_fit_their_room() -> None:
    cells = [
        {
            **cell(number, 1, 1),
            "device": "cpu",
            "parameters": {"n": number, "precision": "bfloat16-with-a-long-name" * 2},
        }
        for number in range(3)
    ]
    for size in SIZES:
        drawn = bars_of(cells, "runTime", size)
        assert [bar.label for bar in drawn.bars] == ["n=0", "n=1", "n=2"]
        assert all("precision=" in bar.name for bar in drawn.bars)
        cells[0]["parameters"] = {"n": 0, "precision": "x"}
        drawn = bars_of(cells, "runTime", size)
        room = drawn.width if drawn.above else drawn.left
        assert all(len(bar.label) * 6.8 <= room for bar in drawn.bars)
        assert drawn.width == bars_of([cell(0, 1, 1)], "runTime", size).width
        cells[0]["parameters"] = {**cells[1]["parameters"], "n": 0}
    assert bars_of([cell(0, 1, 1)], "runTime").bars[0].label == "device-0"


def test_a_total_says_what_it_lacks() -> None:
    whole = {"cells": [cell(0, 1, 1), cell(1, 2, 2)], "runs": {"succeeded": 6, "total": 6}}
    assert lacks(whole, "energy") == []
    partly = {"cells": [cell(0, 1, 1)], "runs": {"succeeded": 5, "failed": 1, "active": 2, "total": 8}}
    assert lacks(partly, "energy") == [
        "2 of 5 successful runs have no measurement",
        "1 failed or cancelled run counts as far as measured",
        "2 runs are still active",
    ]
    guessed = {**whole, "cells": [{**cell(0, 1, 1), "energySource": "estimated"}, cell(1, 1, 1)]}
    assert lacks(guessed, "energy") == ["partly estimated"]
    assert lacks({}, "cost") == []
