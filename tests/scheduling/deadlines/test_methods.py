"""Each method on snapshots small enough to know the answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.generating import Scenario, generate
from isthmus.scheduling.deadlines.methods import METHODS, method
from isthmus.scheduling.deadlines.models import Job, JobState, MachineType, Overheads, Placement, Profile, Snapshot
from isthmus.scheduling.deadlines.optimising import optimise
from isthmus.scheduling.deadlines.simulating import Instance, Outcome, simulate

from .examples import CATALOGUE, FOUR, HOUR, ONE, job, profile, snapshot


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


def test_isthmus_leaves_no_device_idle() -> None:
    """Three of four on one machine would leave a device idle; one and two, or three of one, would not."""
    plan = optimise(snapshot(*(job(f"j{i}", 9) for i in range(3)), machines=3))
    assert len(plan.placements) == sum(kind.devices for kind in plan.machines.values()) == 3


def test_isthmus_packs_when_machines_are_few() -> None:
    plan = optimise(snapshot(*(job(f"j{i}", 9) for i in range(5)), machines=2))
    assert len(plan.placements) == 5
    assert sum(kind.devices for kind in plan.machines.values()) == 5


def test_who_must_hurry_at_some_time_hurries_while_devices_are_idle() -> None:
    """Each of twenty jobs needs four devices for a part of its time, and does not care when. Not all of them fit at
    once: as many as fit hurry now, those with the least slack first, and nobody waits."""
    jobs = [job(f"j{i}", 3.2 + 0.01 * i, a1=4, a4=2) for i in range(20)]
    plan = optimise(snapshot(*jobs, machines=11, gap=60.0))
    hurried = {name for name, place in plan.placements.items() if place.devices == 4}
    assert hurried == {f"j{i}" for i in range(8)}
    assert len(plan.placements) == 20


def test_another_machine_changes_nothing_where_machines_are_plenty() -> None:
    jobs = [job(f"j{i}", 2.5 + i, a1=4, a2=3, a3=2.6, a4=2) for i in range(10)]
    plans = [optimise(snapshot(*jobs, machines=count, gap=3000.0)) for count in (12, 13, 20)]
    assert plans[0] == plans[1] == plans[2]


def test_isthmus_mixes_options_to_be_in_time_at_the_cost_of_the_bound() -> None:
    """With others arriving often, a job changes between one and four devices and comes close to its hull."""
    ticks = [tick(i) for i in range(1, 70)]
    main = job("main", 3.5, a1=4, a2=3.4, a4=2)
    made = Instance((main, *ticks), ("n0", "n1", "n2"), CATALOGUE)
    outcome = simulate(made, method("isthmus"))
    assert {s.devices for s in outcome.stints if s.job == "main"} >= {1, 4}
    assert outcome.cost < 1.05 * made.bound
    assert simulate(made, method("greedy")).cost > 1.1 * made.bound


def tick(number: int) -> Job:
    return job(f"tick{number}", number * 0.05 + 1, submitted=number * 0.05, a1=0.01)


def test_isthmus_does_not_touch_what_cannot_be_restarted() -> None:
    fixed = replace(job("fixed", 50, weight=0.0), restartable=False)
    found = Snapshot(
        0.0,
        ("n0",),
        CATALOGUE,
        (JobState(fixed, 0.5, Placement("n0", 3)), JobState(job("hurried", 2, a4=2, a1=9))),
        {"n0": FOUR},
    )
    found = replace(found, jobs=(replace(found.jobs[0], job=replace(fixed, profile=profile(a3=4))), found.jobs[1]))
    plan = optimise(found)
    assert plan.placements["fixed"] == Placement("n0", 3)
    assert plan.placements["hurried"] == Placement("n0", 1)  # what is left of the machine


def test_isthmus_runs_late_jobs_at_once() -> None:
    plan = optimise(snapshot(job("past", -5), job("calm", 50), machines=1))
    assert "past" in plan.placements


def test_isthmus_rejects_what_nothing_can_run_and_says_why() -> None:
    plan = optimise(snapshot(job("odd", 5, z2=1), job("good", 5)))
    assert "odd" not in plan.placements
    assert "good" in plan.placements
    assert plan.rejected["odd"] == ("no machine can be given what its profile names (z); device types there are: a")


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert optimise(snapshot()).placements == {}
    assert optimise(snapshot(job("j", 5), machines=0)).placements == {}


def test_calm_where_changes_are_dear() -> None:
    """Two jobs run well on machines of their own; one machine for both would do, but moving costs hours."""
    pair = (MachineType("one", "a", 1, 1.0), MachineType("two", "a", 2, 1.9))
    states = tuple(JobState(job(name, 9), 0.9, Placement(f"n{i}", 1)) for i, name in enumerate("ab"))
    found = Snapshot(0.0, ("n0", "n1"), pair, states, {"n0": pair[0], "n1": pair[0]}, gap=HOUR)
    assert optimise(found).machines != found.configured
    dear = optimise(replace(found, overheads=Overheads(start=3600, restore=3600)))
    assert dear.machines == found.configured
    assert dear.placements == {s.job.name: s.placement for s in states}


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(Invalid, match="there is no method 'magic'; choose from fifo"):
        method("magic")


def sublinear(seed: int) -> list[Profile]:
    """Eight profiles whose time falls with more devices, but little."""
    return [
        Profile(
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
