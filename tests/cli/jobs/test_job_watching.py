"""`isthmus jobs --watch`: which rows it begins with, and how wide they are."""

from __future__ import annotations

import io
import shutil
import sys
from os import terminal_size
from typing import Any

import pytest

from isthmus.cli.columns import columns_of
from isthmus.cli.jobs.job_watching import Rows, _Newest
from isthmus.cli.tables import cut
from isthmus.client.resuming import WatchEvent


def job(name: str, born: int, message: str = "") -> dict[str, Any]:
    meta = {"name": name, "uid": name, "creationTimestamp": f"2026-01-01T00:00:0{born}Z", "resourceVersion": "1"}
    return {"metadata": meta, "status": {"phase": "Pending", "message": message}}


def test_it_begins_with_the_newest_in_the_order_of_their_birth() -> None:
    cursor = _Newest("lab", None, None, 2)
    events = cursor.listed([job("a", 3), job("b", 1), job("c", 2)], "7")
    assert [event.object["metadata"]["name"] for event in events] == ["c", "a"]
    assert cursor.first == [event.object for event in events]
    # After a gap what is listed is compared with all that was there, not with what was shown.
    later = cursor.listed([job("a", 3), job("b", 1), job("c", 2), job("d", 4)], "9")
    assert [event.object["metadata"]["name"] for event in later] == ["d"]
    assert len(_Newest("lab", None, None, 0).listed([job("a", 3), job("b", 1)], "7")) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 120, 200])
def test_rows_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: terminal_size((width, 24)))
    rows = Rows([column for column in columns_of("Job") if not column.wide])
    first = [job("short", 1)]
    lines = rows.line(WatchEvent("ADDED", first[0]), first).splitlines()
    lines += rows.line(WatchEvent("ADDED", job("n" * 100, 2, "m" * 300)), first).splitlines()
    assert [len(line) <= width for line in lines] == [True] * 3
    assert len(lines[2]) == width
    assert lines[0].index("PHASE") == lines[1].index("Pending") == lines[2].index("Pending")


def test_elsewhere_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    rows = Rows([column for column in columns_of("Job") if not column.wide])
    reported = rows.line(WatchEvent("DELETED", job("n" * 100, 1, "m" * 300)), None)
    assert "n" * 100 in reported
    assert reported.endswith("deleted\n")


def test_cut() -> None:
    assert [cut("abcdef", 4), cut("ab", 4), cut("日本語", 4)] == ["abc…", "ab  ", "日… "]
