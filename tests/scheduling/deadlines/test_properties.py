"""What must hold for every snapshot."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings

from benchmarks.scheduling.ordering import greedy
from benchmarks.scheduling.simulating import check_plan
from isthmus.scheduling.deadlines.models import (
    DeadlineJob,
    JobState,
    MachineShare,
    MachineType,
    RuntimeProfile,
    Snapshot,
)
from isthmus.scheduling.deadlines.optimising import expected_cost, optimise

from .examples import restartable, snapshots

TOLERANCE = 1e-9
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(snapshots())
def test_no_device_is_given_twice_and_no_job_exceeds_its_profile(snapshot: Snapshot) -> None:
    check_plan(snapshot, optimise(snapshot))


@many
@given(snapshots())
def test_a_plan_is_never_worse_than_greedys(snapshot: Snapshot) -> None:
    snapshot = restartable(snapshot)
    mine, other = expected_cost(snapshot, optimise(snapshot)), expected_cost(snapshot, greedy(snapshot))
    assert mine <= other + TOLERANCE * (1 + abs(other))


@many
@given(snapshots())
def test_another_machine_never_raises_the_cost(snapshot: Snapshot) -> None:
    more = replace(snapshot, machines=(*snapshot.machines, "another"))
    before, after = expected_cost(snapshot, optimise(snapshot)), expected_cost(more, optimise(more))
    assert after <= before + TOLERANCE * (1 + abs(before))


@many
@given(snapshots())
def test_the_same_snapshot_gives_the_same_plan(snapshot: Snapshot) -> None:
    assert optimise(snapshot) == optimise(snapshot)


@many
@given(snapshots())
def test_something_runs_if_anything_can(snapshot: Snapshot) -> None:
    plan = optimise(snapshot)
    assert plan.placements or len(plan.rejected) == len(snapshot.jobs)
    assert set(plan.rejected).isdisjoint(plan.placements)


@many
@given(snapshots())
def test_a_machine_that_disappears_costs_only_its_place(snapshot: Snapshot) -> None:
    fewer = replace(snapshot, machines=snapshot.machines[1:])
    plan = optimise(fewer)
    check_plan(fewer, plan)
    assert snapshot.machines[0] not in plan.machines
    assert plan.placements or not fewer.machines or len(plan.rejected) == len(fewer.jobs)


def test_who_cannot_be_restarted_stays_where_no_other_plan_is_found() -> None:
    """Found by chance: the machine of one job disappears, and what the others could gain is all but nothing."""
    a4, b1, b4 = (MachineType(f"{d}{n}", d, n, float(n), 50 + 100 * n) for d, n in (("a", 4), ("b", 1), ("b", 4)))
    short = 27.807783406318187
    wants = (("a", 3, short, "n0", False), ("b", 3, short, "n1", False), ("b", 1, 60.0, "n1", True))
    jobs = tuple(
        JobState(
            DeadlineJob(
                f"j{row}", 0.0, 0.0, 0.0, RuntimeProfile({(device, count): seconds, ("z", 1): 100.0}), restartable
            ),
            placement=MachineShare(machine, count),
            ready=10.0 if row == 0 else 0.0,
        )
        for row, (device, count, seconds, machine, restartable) in enumerate(wants)
    )
    snapshot = Snapshot(0.0, ("n1",), (a4, b1, b4), jobs, {"n0": a4, "n1": b4})
    check_plan(snapshot, optimise(snapshot))


def test_another_machine_is_not_used_where_staying_is_cheaper() -> None:
    """Found by chance: moving a job to a machine of its own cost more than leaving it beside one that must stay."""
    kinds = tuple(MachineType(f"a{n}", "a", n, float(n), 50 + 100 * n) for n in (1, 2, 3))
    fixed = DeadlineJob("j0", 0.0, 0.0, 0.0, RuntimeProfile({("a", 2): 36.9, ("z", 1): 100.0}), restartable=False)
    other = DeadlineJob("j1", 0.0, 0.0, 0.0, RuntimeProfile({("a", 1): 60.0, ("z", 1): 100.0}), restartable=True)
    jobs = (
        JobState(fixed, placement=MachineShare("n0", 2), ready=10.0),
        JobState(other, placement=MachineShare("n0", 1)),
    )
    now = Snapshot(now=0.0, machines=("n0",), catalogue=kinds, jobs=jobs, configured={"n0": kinds[2]})
    more = replace(now, machines=("n0", "another"))
    assert optimise(more) == optimise(now)
