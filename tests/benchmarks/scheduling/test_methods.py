"""Each method on snapshots small enough to know the answer, and over made instances."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from benchmarks.scheduling.generating import Scenario, generate
from benchmarks.scheduling.methods import METHODS, method
from benchmarks.scheduling.simulating import Instance, Outcome, simulate
from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.models import DeadlineJob, JobState, Overheads, RuntimeProfile
from isthmus.scheduling.deadlines.optimising import optimise
from tests.scheduling.deadlines.examples import CATALOGUE, FOUR, ONE, job, profile, snapshot


@pytest.mark.parametrize(("name", "runs"), [("fifo", "early"), ("edf", "urgent"), ("priority", "dear")])
def test_one_machine_goes_to_the_first_in_order_and_is_kept(name: str, runs: str) -> None:
    jobs = (
        job("early", 10, submitted=-2),
        job("urgent", 5, submitted=-1),
        job("dear", 8, weight=0.05, submitted=0),
    )
    found = snapshot(*jobs, machines=1)
    plan = method(name)(found)
    assert list(plan.placements) == [runs]
    later = replace(
        found,
        jobs=tuple(JobState(j, placement=plan.placements.get(j.name)) for j in (*jobs, job("new", 3, weight=1))),
        configured=plan.machines,
    )
    assert method(name)(later).placements == plan.placements


def test_unshared_takes_the_cheapest_in_time_else_the_fastest() -> None:
    plan = method("edf")(snapshot(job("calm", 9), job("hurried", 2.5), job("lost", 1), machines=3))
    given = {name: (plan.machines[place.machine].name, place.devices) for name, place in plan.placements.items()}
    assert given == {"calm": ("one", 1), "hurried": ("four", 4), "lost": ("four", 4)}


@pytest.mark.parametrize("name", ["fifo-shared", "edf-shared", "priority-shared", "greedy", "random-greedy"])
def test_sharing_methods_put_jobs_together(name: str) -> None:
    jobs = [job(f"j{i}", 9) for i in range(4)]
    plan = method(name)(snapshot(*jobs, machines=1))
    assert set(plan.machines.values()) == {FOUR}
    assert all(place.devices == 1 for place in plan.placements.values())


def test_pressure_goes_first_where_machines_are_few() -> None:
    tight = snapshot(job("calm", 9, a4=2), job("hurried", 2.1, a4=2), machines=1)
    for name in ("greedy", "path-relinking", "isthmus"):
        assert list(method(name)(tight).placements) == ["hurried"], name


def test_isthmus_mixes_options_to_be_in_time_at_the_cost_of_the_bound() -> None:
    """With others arriving often, a job changes between one and four devices and comes close to its hull."""
    ticks = [tick(i) for i in range(1, 70)]
    main = job("main", 3.5, a1=4, a2=3.4, a4=2)
    made = Instance((main, *ticks), ("n0", "n1", "n2"), CATALOGUE)
    outcome = simulate(made, method("isthmus"))
    assert {s.devices for s in outcome.stints if s.job == "main"} >= {1, 4}
    assert outcome.cost < 1.05 * made.bound
    assert simulate(made, method("greedy")).cost > 1.1 * made.bound


def tick(number: int) -> DeadlineJob:
    return job(f"tick{number}", number * 0.05 + 1, submitted=number * 0.05, a1=0.01)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(Invalid, match="there is no method 'magic'; choose from fifo"):
        method("magic")


def sublinear(seed: int) -> list[RuntimeProfile]:
    """Eight profiles whose time falls with more devices, but little."""
    return [
        RuntimeProfile(
            {("a", n): 3600 * (6 + seed + kind) * (0.3 + 0.05 * kind + (0.7 - 0.05 * kind) / n) for n in (1, 2, 3, 4)}
        )
        for kind in range(8)
    ]


@pytest.mark.parametrize("scenario", list(Scenario))
def test_isthmus_is_near_the_bound_and_below_the_others(scenario: Scenario) -> None:
    made = generate(scenario, 6, sublinear(0), CATALOGUE, 1)
    costs = {name: simulate(made, method(name, iterations=5)).cost for name in METHODS}
    assert costs["isthmus"] == min(costs.values())
    assert made.bound <= costs["isthmus"] < 1.06 * made.bound


def test_where_changes_cost_time_isthmus_makes_few_and_who_changes_all_the_time_loses() -> None:
    """Over several instances: in a single one the restless may be lucky."""
    found: dict[str, list[Outcome]] = {"isthmus": [], "greedy": [], "restless": []}
    for scenario, seed in product((Scenario.LOW, Scenario.MIXED), range(3)):
        made = replace(generate(scenario, 6, sublinear(1), CATALOGUE, seed), overheads=Overheads(60, 30))
        found["isthmus"].append(simulate(made, method("isthmus")))
        found["greedy"].append(simulate(made, method("greedy")))
        found["restless"].append(simulate(made, lambda seen: optimise(replace(seen, overheads=Overheads()))))
    costs = {name: sum(outcome.cost for outcome in outcomes) for name, outcomes in found.items()}
    assert costs["isthmus"] < min(costs["greedy"], costs["restless"])
    for mine, other in zip(found["isthmus"], found["restless"], strict=True):
        assert mine.reconfigurations < other.reconfigurations


def test_the_generator_follows_the_setting() -> None:
    made = generate(Scenario.EXPONENTIAL, 40, sublinear(0), CATALOGUE, 3)
    assert len(made.jobs) == 401
    assert made.jobs[0].submitted == 0
    mean = made.jobs[-1].submitted / 400
    assert 75_000 / 40 * 0.85 < mean < 75_000 / 40 * 1.15
    for found in made.jobs:
        fastest = min(found.profile.seconds.values())
        assert fastest <= found.deadline - found.submitted <= 3 * fastest
        assert 0.003 <= found.weight <= 0.015
    high, low = (generate(s, 40, sublinear(0), CATALOGUE, 3) for s in (Scenario.HIGH, Scenario.LOW))
    assert 3 < low.jobs[-1].submitted / high.jobs[-1].submitted < 5
    assert generate(Scenario.LOW, 4, sublinear(0), CATALOGUE, 1) == generate(
        Scenario.LOW, 4, sublinear(0), CATALOGUE, 1
    )
    assert generate(Scenario.LOW, 4, sublinear(0), CATALOGUE, 1) != generate(
        Scenario.LOW, 4, sublinear(0), CATALOGUE, 2
    )


def test_the_generator_refuses_what_it_cannot_make() -> None:
    with pytest.raises(Invalid, match="at least one"):
        generate(Scenario.LOW, 0, sublinear(0), CATALOGUE, 1)
    with pytest.raises(Invalid, match="no profiles"):
        generate(Scenario.LOW, 1, [], CATALOGUE, 1)
    with pytest.raises(Invalid, match="no machine of the price table"):
        generate(Scenario.LOW, 1, [profile(z1=1)], (ONE,), 1)
