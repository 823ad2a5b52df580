"""One more machine never makes a plan worse, and spare ones change nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scheduling.generating import Scenario, generate
from benchmarks.scheduling.ordering import greedy
from benchmarks.scheduling.tables import read_prices, read_profiles, shipped
from isthmus.scheduling.deadlines.models import JobState, Overheads, Snapshot
from isthmus.scheduling.deadlines.optimising import expected_cost, optimise

from .examples import running

CATALOGUE = read_prices(shipped("machines.csv"))
PROFILES = read_profiles(shipped("profiles.csv"), CATALOGUE)
ROUNDING = 1e-9


def moment(seed: int, least: int = 9, most: int = 60) -> Snapshot:
    """Some jobs of a made instance, some of them half done, with so many machines."""
    chance = random.Random(seed)
    count = chance.randint(least, most)
    made = generate(chance.choice(list(Scenario)), count, PROFILES, CATALOGUE, seed)
    jobs = chance.sample(made.jobs, chance.randint(count // 2, min(3 * count, len(made.jobs))))
    states = tuple(
        JobState(
            replace(job, deadline=job.deadline - job.submitted, submitted=0.0), chance.choice([1.0, chance.random()])
        )
        for job in jobs
    )
    return Snapshot(0.0, made.machines, CATALOGUE, states, gap=chance.choice([None, 10 ** chance.uniform(2, 5)]))


@pytest.mark.parametrize("seed", range(30))
def test_one_more_machine_never_raises_the_cost(seed: int) -> None:
    found = moment(seed)
    costs = []
    for extra in range(4):
        more = replace(found, machines=(*found.machines, *(f"extra-{number}" for number in range(extra))))
        costs.append(expected_cost(more, optimise(more)))
    assert all(after <= before + ROUNDING * (1 + abs(before)) for before, after in pairwise(costs))
    other = expected_cost(found, greedy(found))
    assert costs[0] <= other + ROUNDING * (1 + abs(other))


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.builds(Overheads, *[st.sampled_from([0.0, 30.0, 60.0, 600.0])] * 3),
    st.booleans(),
    st.integers(0, 9),
)
def test_nor_where_changes_cost_time(seed: int, overheads: Overheads, runs: bool, bound: int) -> None:
    found = replace(moment(seed, 1, 40), overheads=overheads)
    if runs:
        found = running(found)
        states = tuple(
            replace(state, job=replace(state.job, restartable=index >= bound)) for index, state in enumerate(found.jobs)
        )
        found = replace(found, jobs=states)
    more = replace(found, machines=(*found.machines, "another"))
    before, after = (expected_cost(each, optimise(each)) for each in (found, more))
    assert after <= before + ROUNDING * (1 + abs(before))


def test_spare_machines_change_nothing() -> None:
    found = moment(3)
    plans = [
        optimise(replace(found, machines=tuple(f"n{number}" for number in range(count))))
        for count in (len(found.jobs), len(found.jobs) + 1, 2 * len(found.jobs))
    ]
    assert plans[0] == plans[1] == plans[2]
