"""The hull of a job's options."""

from __future__ import annotations

import pytest

from isthmus.scheduling.deadlines.curves import curve_of
from isthmus.scheduling.deadlines.models import CHEAPEST, MachineType

from .examples import CATALOGUE, HOUR, profile


def test_the_hull_leaves_out_what_a_mix_of_others_beats() -> None:
    # (hours, cost): (4, 4), (3.9, 7.8), (2, 8): the second lies above the line from the first to the third.
    curve = curve_of(profile(a1=4, a2=3.9, a4=2), CATALOGUE, CHEAPEST)
    assert curve is not None
    assert [option.devices for option in curve.hull] == [4, 1]


def test_the_share_is_that_of_the_cheapest_machine_per_device() -> None:
    catalogue = (MachineType("one", "a", 1, 1.0), MachineType("eight", "a", 8, 4.0))
    curve = curve_of(profile(a1=4), catalogue, CHEAPEST)
    assert curve is not None
    assert curve.hull[0].cost == pytest.approx(2.0)
    assert curve.hull[0].alone * HOUR == pytest.approx(1.0)


def test_what_no_machine_can_run_has_no_curve() -> None:
    assert curve_of(profile(z1=4), CATALOGUE, CHEAPEST) is None
    assert curve_of(profile(a8=4), CATALOGUE, CHEAPEST) is None
