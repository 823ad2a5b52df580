"""A comparison as table, CSV and report; series as small pictures."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser
from typing import Any

import pytest

from isthmus.cli.experiments.compare import read_parameter, read_tolerance
from isthmus.cli.experiments.comparisons import csv_of, progress_line, spread_text, table_of, went_well
from isthmus.cli.experiments.experiments import form_of
from isthmus.cli.experiments.report_plots import ticks
from isthmus.cli.experiments.reports import html_report
from isthmus.cli.jobs.sparklines import lines, merged, sparkline
from isthmus.errors import Invalid


def spread(median: float, half: float = 0.0) -> dict[str, float]:
    low, high = median - half, median + half
    return {"median": median, "low": low, "high": high, "min": low, "max": high, "count": 3}


def experiment(**changes: Any) -> dict[str, Any]:
    cells = [
        {"index": 0, "device": "cpu", "parameters": {"lr": "0.1"}, "state": "Succeeded", "correct": True,
         "runs": {"succeeded": 3, "total": 3}, "runTime": spread(2.0, 0.1), "energy": spread(30.0),
         "values": {"accuracy": spread(0.9)}},
        {"index": 1, "device": "<img src=x onerror=alert(1)>", "parameters": {"lr": "=1+1"}, "state": "Succeeded",
         "correct": False, "deviations": ["accuracy: </pre><script>alert(1)</script>"],
         "runs": {"succeeded": 3, "total": 3}, "runTime": spread(1.0), "energy": spread(90.0)},
        {"index": 2, "device": "akida", "state": "Waiting", "runs": {"total": 3}},
    ]  # fmt: skip
    status = {"phase": "Succeeded", "cells": cells, "best": 0, "front": [0], "reference": 0,
              "runs": {"total": 9, "succeeded": 6, "failed": 0}}  # fmt: skip
    return {"metadata": {"name": "boards"}, "spec": {"template": {"command": ["x"]}}, "status": {**status, **changes}}


def test_the_table_has_a_column_for_what_differs() -> None:
    titles, rows = table_of(experiment())
    assert titles == ["CELL", "DEVICE", "lr", "STATE", "RUNS", "RUN TIME", "ENERGY", "accuracy", "CORRECT", "NOTE"]
    assert rows[0] == [
        "0",
        "cpu",
        "0.1",
        "Succeeded",
        "3/3",
        "2 s ±0.1",
        "30 J",
        "0.9",
        "yes",
        "best; front; reference",
    ]
    assert rows[2][5:9] == ["", "", "", ""]


def test_numbers_with_their_spread() -> None:
    assert spread_text(spread(1680, 168), "Js") == "1680 Js ±168"
    assert spread_text(spread(2**20, 2**10), "B") == "1MiB ±1KiB"
    assert spread_text(None, "s") == ""


def test_csv_has_every_number_and_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(experiment()))))
    assert [row["runTime.median"] for row in rows] == ["2.0", "1.0", ""]
    assert rows[0]["values.accuracy.median"] == "0.9"
    assert [row["correct"] for row in rows] == ["true", "false", ""]
    assert rows[1]["parameters.lr"] == "'=1+1"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_report_stands_alone_and_runs_nothing() -> None:
    text = html_report(experiment())
    tags = _Tags()
    tags.feed(text)
    assert tags.found.count("svg") == 4
    assert not {"script", "img", "link", "iframe"} & set(tags.found)
    assert not {"src", "href", "onerror", "onload"} & tags.attributes
    assert "default-src 'none'" in text
    assert "&lt;script&gt;alert(1)" in text


def test_a_report_of_nothing_yet() -> None:
    assert "<svg" not in html_report({"metadata": {"name": "e"}, "spec": {}, "status": {}})


@pytest.mark.parametrize("most", [0.003, 1.0, 7.3, 250.0, 1e9])
def test_ticks_are_few_and_reach_the_end(most: float) -> None:
    found = ticks(most)
    assert 3 <= len(found) <= 12
    assert most * 0.7 <= found[-1] <= most


def test_whether_it_went_well() -> None:
    assert not went_well(experiment())
    right = experiment()
    right["status"]["cells"][1]["correct"] = None
    assert went_well(right)
    right["status"]["runs"]["failed"] = 1
    assert not went_well(right)
    assert progress_line(right) == "7 of 9 runs, 0 active, 1 failed"


def test_words_of_parameters() -> None:
    assert read_parameter("lr=0.1,0.01") == ("lr", ["0.1", "0.01"])
    assert read_parameter("lr=0.001..1:log") == ("lr", {"min": 0.001, "max": 1.0, "log": True})
    assert read_parameter("n=1..9:int") == ("n", {"min": 1.0, "max": 9.0, "integer": True})
    for wrong in ("lr", "=1", "lr=", "lr=a..b", "lr=1..2:odd"):
        with pytest.raises(Invalid, match="--param"):
            read_parameter(wrong)
    assert read_tolerance("accuracy:0.01") == ("accuracy", 0.01)
    with pytest.raises(Invalid, match="not a number"):
        read_tolerance("accuracy:much")
    with pytest.raises(Invalid, match="-o csv"):
        form_of("report.pdf")


def test_sparklines() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 1, 2, 3]) == "▁▃▆█"
    assert len(sparkline(list(range(1000)), 40)) == 40
    assert set(sparkline([5, 5, 5])) == {"█"}
    first = {"reset": True, "series": [{"name": "memory", "unit": "bytes", "points": [[1, 1024.0]]}]}
    new = {"reset": False, "series": [{"name": "memory", "unit": "bytes", "points": [[2, 2048.0]]}]}
    both = merged(first, new)
    assert both["series"][0]["points"] == [[1, 1024.0], [2, 2048.0]]
    assert lines(both) == [("memory", "▄█  2KiB, at most 2KiB")]
    assert merged(both, first) == first
