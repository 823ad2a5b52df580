"""The hull of a job's options, and the bound that follows from it."""

from __future__ import annotations

import pytest

from isthmus.scheduling.deadlines.curves import curve_of, least_cost, lower_bound
from isthmus.scheduling.deadlines.models import CHEAPEST, Goal, MachineType, Objective

from .examples import CATALOGUE, HOUR, job, profile


def test_the_hull_leaves_out_what_a_mix_of_others_beats() -> None:
    # (hours, cost): (4, 4), (3.9, 7.8), (2, 8): the second lies above the line from the first to the third.
    curve = curve_of(profile(a1=4, a2=3.9, a4=2), CATALOGUE, CHEAPEST)
    assert curve is not None
    assert [option.devices for option in curve.hull] == [4, 1]


def test_the_bound_of_a_job_in_no_hurry_is_its_cheapest_option() -> None:
    assert lower_bound([job("j", 10, a1=4, a4=2)], CATALOGUE, CHEAPEST) == pytest.approx(4.0)


def test_the_bound_of_a_job_in_a_hurry_lies_on_the_hull() -> None:
    # Half of the work with each option takes three hours and costs (4 + 8) / 2.
    assert lower_bound([job("j", 3, a1=4, a4=2)], CATALOGUE, CHEAPEST) == pytest.approx(6.0)


def test_a_job_that_cannot_be_in_time_pays_for_being_late() -> None:
    assert lower_bound([job("j", 1, weight=0.01, a1=4, a4=2)], CATALOGUE, CHEAPEST) == pytest.approx(8 + HOUR * 0.01)


def test_being_late_may_be_cheaper_than_hurrying() -> None:
    # One cent an hour late against two dollars an hour to be faster.
    cheap = lower_bound([job("j", 2, weight=0.01 / HOUR, a1=4, a4=2)], CATALOGUE, CHEAPEST)
    assert cheap == pytest.approx(4.02)


def test_the_rest_of_a_job_costs_what_is_left_of_it() -> None:
    curve = curve_of(profile(a1=4, a4=2), CATALOGUE, CHEAPEST)
    assert curve is not None
    edges = curve.edges(0.01)
    assert least_cost(edges, 0.5, 10 * HOUR) == pytest.approx(2.0)
    assert least_cost(edges, 0.5, 1.5 * HOUR) == pytest.approx(3.0)


def test_the_share_is_that_of_the_cheapest_machine_per_device() -> None:
    catalogue = (MachineType("one", "a", 1, 1.0), MachineType("eight", "a", 8, 4.0))
    curve = curve_of(profile(a1=4), catalogue, CHEAPEST)
    assert curve is not None
    assert curve.hull[0].cost == pytest.approx(2.0)
    assert curve.hull[0].alone * HOUR == pytest.approx(1.0)


def test_energy_is_another_objective() -> None:
    objective = Objective(Goal.ENERGY, per_kwh=0.5)
    # 100 W for four hours are 0.4 kWh; per device the largest machine draws least, 80 W.
    assert lower_bound([job("j", 10, a1=4)], CATALOGUE, objective) == pytest.approx(0.08 * 4 * 0.5)


def test_what_no_machine_can_run_has_no_curve() -> None:
    assert curve_of(profile(z1=4), CATALOGUE, CHEAPEST) is None
    assert curve_of(profile(a8=4), CATALOGUE, CHEAPEST) is None
