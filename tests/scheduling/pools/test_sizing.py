"""The planner of pools: what it takes, from whom, and what it never does."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.scheduling.pools.machine_models import (
    HostAction,
    MoveTimes,
    PoolBounds,
    PooledHost,
    PoolPlan,
    PoolSnapshot,
    PoolTuning,
    WaitingWork,
)
from isthmus.scheduling.pools.sizing import lately, size_pools

NOW = 10_000.0
BATCH, SERVICES = PoolBounds("batch"), PoolBounds("services")


def hosts(pool: str, count: int, *, first: int = 0, **given: object) -> tuple[PooledHost, ...]:
    return tuple(PooledHost(f"{pool}-{first + i}", pool, **{"since": NOW - 60, **given}) for i in range(count))  # type: ignore[arg-type]


def sized(
    machines: tuple[PooledHost, ...],
    *waiting: WaitingWork,
    pools: tuple[PoolBounds, ...] = (BATCH, SERVICES),
    **given: object,
) -> PoolPlan:
    return size_pools(PoolSnapshot(NOW, pools, machines, waiting, **given))  # type: ignore[arg-type]


def actions(plan: PoolPlan) -> Counter[tuple[str, str]]:
    return Counter((change.action, change.target) for change in plan.changes)


def test_idle_machines_go_to_where_work_waits() -> None:
    plan = sized(hosts("services", 4), WaitingWork("batch", 2, 3600))
    assert actions(plan) == {("move", "batch"): 2}
    assert plan.sizes == {"batch": 2, "services": 2}
    assert plan.changes[0].why == "batch has work for 2 more, and services has no work for this machine"
    assert plan.reasons["services"] == "gives 2 machines that it has no work for"


def test_machines_that_gather_for_a_wide_job_are_not_taken() -> None:
    gathering = hosts("services", 3) + hosts("services", 1, first=3, free_at=NOW + 7200)
    plan = sized(gathering, WaitingWork("services", 4, 600), WaitingWork("batch", 1, 3600))
    assert plan.changes == ()
    assert plan.reasons["batch"] == "lacks 1 machine, and none can be had"


def test_a_wide_job_gets_all_of_its_machines_or_none() -> None:
    assert sized(hosts("services", 4), WaitingWork("batch", 5, 3600)).changes == ()
    assert actions(sized(hosts("services", 5), WaitingWork("batch", 5, 3600))) == {("move", "batch"): 5}


def test_a_narrow_job_behind_a_wide_one_that_cannot_be_helped_gets_machines() -> None:
    machines = hosts("batch", 1, free_at=NOW + 9000) + hosts("services", 3)
    assert actions(sized(machines, WaitingWork("batch", 6, 3600), WaitingWork("batch", 1, 3600))) == {
        ("move", "batch"): 1
    }


def test_work_that_starts_soon_by_itself_takes_no_machines() -> None:
    machines = hosts("batch", 2, free_at=NOW + 5) + hosts("services", 4)
    plan = sized(machines, WaitingWork("batch", 1, 30))
    assert plan.changes == ()
    assert plan.reasons["batch"] == "its waiting work starts on its own machines before others could arrive"


def test_many_short_jobs_do_not_take_a_machine_each() -> None:
    plan = sized(hosts("services", 50), *[WaitingWork("batch", 1, 30)] * 100)
    assert plan.sizes["batch"] == 5, "3,000 s of work within 600 s"


def test_what_arrives_soonest_is_taken_first() -> None:
    machines = hosts("services", 1) + hosts("batch", 1, on=False) + hosts("services", 1, first=1, free_at=NOW + 250)
    chosen = [change.host for change in sized(machines, WaitingWork("batch", 3, 3600)).changes]
    assert chosen == ["services-0", "batch-0", "services-1"]
    slow = MoveTimes(move={("services", "batch"): 600.0})
    assert sized(machines, WaitingWork("batch", 1, 3600), times=slow).changes[0].host == "batch-0"


def test_a_machine_that_just_arrived_stays() -> None:
    assert sized(hosts("services", 3, arrived=NOW - 10), WaitingWork("batch", 1, 3600)).changes == ()


def test_a_pool_keeps_what_it_used_lately_and_lends_more_to_short_work() -> None:
    used = {"services": 10.0}
    long = sized(hosts("services", 14), WaitingWork("batch", 14, 7200), WaitingWork("batch", 1, 7200), used=used)
    short = sized(hosts("services", 14), *[WaitingWork("batch", 1, 600)] * 14, used=used)
    assert len(long.changes) == 0, "two at most can be spared, and they help nobody"
    assert 2 < len(short.changes) <= 11


def test_shapes_that_a_pool_does_not_take_stay() -> None:
    machines = hosts("services", 2, shape="arm") + hosts("services", 1, first=2, shape="x86")
    plan = sized(machines, *[WaitingWork("batch", 1, 3600)] * 3, fits={"batch": frozenset({"x86"})})
    assert [change.host for change in plan.changes] == ["services-2"]


def test_an_earlier_deadline_is_served_first() -> None:
    third = PoolBounds("third")
    waiting = (WaitingWork("services", 1, 3600), WaitingWork("batch", 1, 3600, latest=NOW + 600))
    plan = sized(hosts("third", 1), *waiting, pools=(BATCH, SERVICES, third))
    assert [change.target for change in plan.changes] == ["batch"]


def test_what_was_idle_for_long_is_switched_off_down_to_the_minimum() -> None:
    pools = (BATCH, PoolBounds("services", minimum=2))
    plan = sized(hosts("services", 5, since=NOW - 3600), pools=pools)
    assert actions(plan) == {("stop", "services"): 3}
    assert plan.changes[0].why == "it has been idle for 3600 s"


def test_a_pool_that_does_not_follow_demand_is_left_alone() -> None:
    fixed = PoolBounds("services", follows=False)
    plan = sized(hosts("services", 5, since=0.0), WaitingWork("batch", 2, 3600), pools=(BATCH, fixed))
    assert plan.changes == ()
    assert plan.reasons["services"] == "its size does not follow demand"


@pytest.mark.parametrize(("busy", "expected"), [(0, 3.68), (10, 10.0)])
def test_what_was_used_is_forgotten_slowly(busy: int, expected: float) -> None:
    assert lately(10.0, busy, 3600.0, PoolTuning()) == pytest.approx(expected, abs=0.01)


NAMES = ("a", "b", "c")


@st.composite
def snapshots(draw: st.DrawFn) -> PoolSnapshot:
    pools = tuple(
        PoolBounds(name, draw(st.integers(0, 3)), draw(st.integers(3, 12)), draw(st.booleans())) for name in NAMES
    )
    machines = []
    for number in range(draw(st.integers(0, 20))):
        on = draw(st.booleans())
        machines.append(
            PooledHost(
                f"h{number}",
                draw(st.sampled_from(NAMES)),
                draw(st.sampled_from(("x", "y"))),
                on=on,
                free_at=draw(st.sampled_from((None, NOW + 5, NOW + 200, NOW + 9000))) if on else None,
                since=draw(st.sampled_from((0.0, NOW - 10))),
                arrived=draw(st.sampled_from((0.0, NOW - 10))),
                kept=draw(st.booleans()),
                moving=on and draw(st.booleans()),
            )
        )
    waiting = draw(
        st.lists(st.builds(WaitingWork, st.sampled_from(NAMES), st.integers(1, 9), st.floats(1, 9000)), max_size=12)
    )
    return PoolSnapshot(NOW, pools, tuple(machines), tuple(waiting), used={"a": draw(st.floats(0, 9))})


@given(snapshots())
def test_whatever_is_seen_nothing_is_taken_that_must_stay(seen: PoolSnapshot) -> None:
    plan = size_pools(seen)
    machines, pools = {host.name: host for host in seen.hosts}, {pool.name: pool for pool in seen.pools}
    before = Counter(host.pool for host in seen.hosts if host.on or host.moving)
    assert max(Counter(change.host for change in plan.changes).values(), default=1) == 1, "a machine changes once"
    gathered = {pool: sum(job.hosts for job in seen.waiting if job.pool == pool) for pool in NAMES}
    for change in plan.changes:
        host = machines[change.host]
        assert not host.kept
        assert not host.moving
        assert pools[change.target].follows
        assert (change.action is HostAction.START) == (not host.on)
        assert change.action is not HostAction.STOP or host.free_at is None
        assert change.action is not HostAction.MOVE or change.source != change.target
    for name, pool in pools.items():
        assert plan.sizes[name] <= max(pool.maximum, before[name])
        assert plan.sizes[name] >= min(pool.minimum, before[name])
        idle = sum(host.on and host.free_at is None and not host.moving for host in seen.hosts if host.pool == name)
        gone = sum(
            change.source == name and machines[change.host].on and machines[change.host].free_at is None
            for change in plan.changes
        )
        assert gone <= max(0, idle - gathered[name]), "waiting work keeps the idle machines that it can use"


@given(snapshots())
def test_a_plan_that_was_carried_out_is_not_taken_back(seen: PoolSnapshot) -> None:
    """Asked again a moment later, with the machines where the plan put them, it moves none of them elsewhere."""
    first = size_pools(seen)
    target = {change.host: change for change in first.changes}
    later = tuple(
        PooledHost(
            host.name, change.target, host.shape, on=change.action is not HostAction.STOP, since=NOW, arrived=NOW
        )
        if (change := target.get(host.name))
        else host
        for host in seen.hosts
    )
    second = size_pools(PoolSnapshot(NOW + 30, seen.pools, later, seen.waiting, used=seen.used))
    moved = {change.host for change in first.changes if change.action is HostAction.MOVE}
    assert not [change for change in second.changes if change.host in moved]
