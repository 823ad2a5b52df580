"""The bound that follows from the hull of a job's options."""

from __future__ import annotations

import pytest

from benchmarks.scheduling.bounding import least_cost, lower_bound
from isthmus.scheduling.deadlines.curves import curve_of
from isthmus.scheduling.deadlines.models import CHEAPEST, CostGoal, CostObjective
from tests.scheduling.deadlines.examples import CATALOGUE, HOUR, job, profile


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


def test_energy_is_another_objective() -> None:
    objective = CostObjective(CostGoal.ENERGY, per_kwh=0.5)
    # 100 W for four hours are 0.4 kWh; per device the largest machine draws least, 80 W.
    assert lower_bound([job("j", 10, a1=4)], CATALOGUE, objective) == pytest.approx(0.08 * 4 * 0.5)
