"""The optimiser on snapshots small enough to know the answer."""

from __future__ import annotations

from dataclasses import replace

from isthmus.scheduling.deadlines.models import JobState, MachineShare, MachineType, Overheads, Snapshot
from isthmus.scheduling.deadlines.optimising import optimise

from .examples import CATALOGUE, FOUR, HOUR, job, profile, snapshot


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


def test_isthmus_does_not_touch_what_cannot_be_restarted() -> None:
    fixed = replace(job("fixed", 50, weight=0.0), restartable=False)
    found = Snapshot(
        0.0,
        ("n0",),
        CATALOGUE,
        (JobState(fixed, 0.5, MachineShare("n0", 3)), JobState(job("hurried", 2, a4=2, a1=9))),
        {"n0": FOUR},
    )
    found = replace(found, jobs=(replace(found.jobs[0], job=replace(fixed, profile=profile(a3=4))), found.jobs[1]))
    plan = optimise(found)
    assert plan.placements["fixed"] == MachineShare("n0", 3)
    assert plan.placements["hurried"] == MachineShare("n0", 1)  # what is left of the machine


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
    states = tuple(JobState(job(name, 9), 0.9, MachineShare(f"n{i}", 1)) for i, name in enumerate("ab"))
    found = Snapshot(0.0, ("n0", "n1"), pair, states, {"n0": pair[0], "n1": pair[0]}, gap=HOUR)
    assert optimise(found).machines != found.configured
    dear = optimise(replace(found, overheads=Overheads(start=3600, restore=3600)))
    assert dear.machines == found.configured
    assert dear.placements == {s.job.name: s.placement for s in states}
