from __future__ import annotations

from math import inf

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.scheduling.demands import Room
from isthmus.scheduling.planning.timelines import MOST_ENDS, Timeline


def gpus(count: int) -> Room:
    return Room(devices=(("gpu", count),))


def test_room_is_found_when_somebody_leaves() -> None:
    line = Timeline(0, gpus(4), [(100, gpus(3)), (50, gpus(1))])
    assert line.earliest(gpus(1), 10) == 50
    assert line.earliest(gpus(4), 10) == 100
    assert line.earliest(gpus(5), 10) is None
    assert line.earliest(Room(devices=(("akida", 1),)), 10) is None


def test_a_gap_must_be_long_enough() -> None:
    line = Timeline(0, gpus(1))
    line.take(gpus(1), 30, 60)
    assert line.earliest(gpus(1), 30) == 0
    assert line.earliest(gpus(1), 31) == 60
    assert line.earliest(gpus(1), 5, after=20) == 20
    line.give(gpus(1), 40, 60)
    assert line.earliest(gpus(1), 31) == 40


def test_a_copy_leaves_the_original_alone() -> None:
    line = Timeline(0, gpus(1))
    line.copy().take(gpus(1), 0, inf)
    assert line.earliest(gpus(1), 10) == 0


def test_many_ends_are_taken_together_and_never_too_early() -> None:
    line = Timeline(0, gpus(1000), [(float(end), gpus(1)) for end in range(1, 1001)])
    assert len(line.moments) <= MOST_ENDS + 1
    for wanted in (1, 300, 999):
        found = line.earliest(gpus(wanted), 1)
        assert found is not None
        assert found >= wanted


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 50), st.integers(0, 80)), max_size=20))
def test_no_device_is_given_twice(wishes: list[tuple[int, int, int]]) -> None:
    line = Timeline(0, gpus(4), [(17, gpus(2))])
    taken = [(0.0, 17.0, 2)]
    for count, seconds, after in wishes:
        start = line.earliest(gpus(count), seconds, after)
        assert start is not None
        assert start >= after
        line.take(gpus(count), start, start + seconds)
        taken.append((start, start + seconds, count))
    for moment, _, _ in taken:
        assert sum(count for start, end, count in taken if start <= moment < end - 1e-6) <= 4
