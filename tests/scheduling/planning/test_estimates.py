from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.resources.work.plans import ProfileSource
from isthmus.scheduling.planning.estimates import ASSUMED_SECONDS, estimate


def test_past_runs_are_believed_before_the_manifest() -> None:
    found = estimate([("gpu", 1)], {("gpu", 1): 100.0}, {("gpu", 1): [50.0, 52.0, 51.0]})
    one = found.by_key["gpu", 1]
    assert (one.seconds, one.source) == (51.0, ProfileSource.PAST_RUNS)
    assert found.remarks == ()


def test_a_profile_that_past_runs_contradict_is_remarked_on() -> None:
    found = estimate([("gpu", 1)], {("gpu", 1): 100.0}, {("gpu", 1): [500.0]})
    assert found.by_key["gpu", 1].seconds == 500
    assert "past runs took 500 s; past runs are believed" in found.remarks[0]


def test_few_runs_are_less_sure_than_many_that_agree() -> None:
    spreads = [estimate([("gpu", 1)], {}, {("gpu", 1): [100.0] * count}).by_key["gpu", 1].spread for count in (1, 2, 5)]
    assert spreads == sorted(spreads, reverse=True)


def test_the_model_follows_amdahl_and_says_how_unsure_it_is() -> None:
    stated = {("gpu", 1): 110.0, ("gpu", 2): 60.0}  # 10 s that do not shrink, 100 s that do
    found = estimate([("gpu", 4), ("gpu", 16)], stated).by_key
    assert found["gpu", 4].seconds == pytest.approx(35)
    assert found["gpu", 16].seconds == pytest.approx(16.25)
    assert found["gpu", 4].source is ProfileSource.MODEL
    assert found["gpu", 16].spread > found["gpu", 4].spread > 0.1


def test_a_class_that_nothing_is_known_of_is_left_out_if_another_is_known() -> None:
    found = estimate([("gpu", 1), ("akida", 1)], {("gpu", 1): 100.0})
    assert set(found.by_key) == {("gpu", 1)}
    assert found.remarks == ("akida: there is neither a profile nor a past run for it",)


def test_if_nothing_is_known_an_hour_is_assumed_and_said_to_be() -> None:
    found = estimate([("gpu", 1), ("akida", 1)], {})
    assert {one.seconds for one in found.by_key.values()} == {ASSUMED_SECONDS}
    assert {one.source for one in found.by_key.values()} == {ProfileSource.ASSUMED}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    points=st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e6), min_size=1, max_size=6),
    wanted=st.lists(st.integers(1, 256), min_size=1, max_size=6),
)
def test_estimates_are_positive_and_the_model_never_grows_with_devices(
    points: dict[int, float], wanted: list[int]
) -> None:
    found = estimate([("gpu", n) for n in wanted], {("gpu", n): s for n, s in points.items()}).by_key
    modelled = sorted((n, one.seconds) for (_, n), one in found.items() if one.source is ProfileSource.MODEL)
    assert len(found) == len(set(wanted))
    assert all(one.seconds > 0 and 0 < one.spread <= 2 for one in found.values())
    assert all(later[1] <= earlier[1] + 1e-6 for earlier, later in pairwise(modelled))
