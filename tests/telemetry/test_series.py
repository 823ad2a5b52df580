"""The embedded database: bounded, with cursors that neither miss nor repeat, and safe to lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.telemetry.journals import Point, Sample
from isthmus.telemetry.series import MAX_POINTS, NEWEST, Progress, SeriesStore


def cpu(*pairs: tuple[float, float]) -> list[Point]:
    return [Point("cpu", at, value) for at, value in pairs]


def test_a_cursor_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store = SeriesStore(tmp_path / "s.db")
    store.add("r.0", Progress(samples=10, last=Sample(1.0, 2.0)), cpu((1, 1), (2, 2)), 0)
    first = store.read("r.0", None)
    assert (first.series, first.reset) == ({"cpu": [(1, 1), (2, 2)]}, True)
    store.add("r.0", Progress(samples=20, estimated=True), cpu((3, 3)), 0)
    store.add("other.0", Progress(), cpu((9, 9)), 0)
    more = store.read("r.0", first.cursor)
    assert (more.series, more.reset, more.estimated) == ({"cpu": [(3, 3)]}, False, True)
    assert store.read("r.0", more.cursor).series == {}
    store.close()
    again = SeriesStore(tmp_path / "s.db")
    assert again.progress("r.0").samples == 20
    assert again.read("r.0", more.cursor).reset is False
    again.close()


@pytest.mark.parametrize("cursor", ["", "x", "another-5", "-", "a-b-c", "other-99999999999999999999999"])
def test_a_cursor_of_another_database_is_answered_with_everything(tmp_path: Path, cursor: str) -> None:
    store = SeriesStore(tmp_path / "s.db")
    store.add("r.0", Progress(), cpu((1, 1)), 0)
    found = store.read("r.0", cursor)
    assert (found.series, found.reset) == ({"cpu": [(1, 1)]}, True)
    store.close()


def test_a_long_series_is_averaged_but_for_its_newest_points(tmp_path: Path) -> None:
    store = SeriesStore(tmp_path / "s.db")
    total = 10 * MAX_POINTS
    for start in range(0, total, 100):
        store.add("r.0", Progress(), cpu(*((float(n), float(n)) for n in range(start, start + 100))), 0)
    points = store.read("r.0", None).series["cpu"]
    assert len(points) <= MAX_POINTS
    assert points == sorted(points)
    assert points[-NEWEST:] == [(float(n), float(n)) for n in range(total - NEWEST, total)]
    assert all(at == pytest.approx(value) for at, value in points)
    assert points[0][0] < total / 50, "the beginning is still there"
    store.close()


def test_old_runs_are_forgotten_and_so_are_too_many(tmp_path: Path) -> None:
    store = SeriesStore(tmp_path / "s.db")
    for number in range(5):
        store.add(f"r.{number}", Progress(), cpu((1, 1), (2, 2)), float(number))
    assert store.sweep(100.0, kept_seconds=98.5) == 2
    assert store.sweep(100.0, kept_seconds=1e9, max_total=4) == 1
    assert [bool(store.read(f"r.{n}", None).series) for n in range(5)] == [False, False, False, True, True]
    store.close()


def test_a_damaged_database_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"not a database at all" * 100)
    store = SeriesStore(tmp_path / "s.db")
    store.add("r.0", Progress(), cpu((1, 1)), 0)
    assert store.read("r.0", None).series
    store.close()
