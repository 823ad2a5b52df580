from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.resources.work.plans import DeviceChosen, ProfileSource, Saving
from isthmus.scheduling.demands import Demand, Room
from isthmus.scheduling.planning.planning import (
    MOST_TASKS,
    DraftOrder,
    Holder,
    Outlook,
    Situation,
    Task,
    draft_of,
    plan_deadlines,
)
from isthmus.scheduling.planning.proposing import proposal
from isthmus.scheduling.planning.timelines import Timeline
from isthmus.scheduling.planning.ways import Way


def way(site: str, device: str, count: int, seconds: float, price: float = 0.0, **more: Any) -> Way:
    room = Room(devices=((device, count),))
    chosen = DeviceChosen(class_=device, count=count)
    made = Way(site, chosen, (device, count), Demand("t", room), seconds, 0.0, ProfileSource.MANIFEST)
    return replace(made, rate=price * count / 3600, **more)


def task(uid: str, *ways: Way, deadline: float = inf, weight: float = 0.01, **more: Any) -> Task:
    return Task(uid, "t", ways, deadline, weight, **more)


def site(now: float = 0.0, *taken: tuple[float, str, int], **devices: int) -> Timeline:
    capacity = Room(devices=tuple(sorted(devices.items())))
    return Timeline(now, capacity, [(end, Room(devices=((name, count),))) for end, name, count in taken])


def chosen(outlook: Outlook, uid: str) -> tuple[str, str, float]:
    bid = outlook.seats[uid].bid
    return bid.way.site, bid.way.key[0], bid.start


SLOW, FAST = way("a", "slow", 1, 3600, price=1), way("b", "fast", 1, 600, price=20)
SITES = {"a": site(slow=1), "b": site(fast=1)}


def test_the_cheapest_that_is_in_time_else_what_costs_least_with_lateness() -> None:
    for deadline, wanted in ((5000, "slow"), (700, "fast"), (-100, "fast")):
        made = plan_deadlines(Situation(0, SITES, (task("j", SLOW, FAST, deadline=deadline),)))
        assert chosen(made, "j")[1] == wanted
        assert len(made.seats["j"].others) == 1


def test_a_job_waits_for_cheap_devices_if_its_deadline_allows() -> None:
    busy = {"a": site(0, (1000, "slow", 1), slow=1), "b": site(fast=1)}
    assert chosen(plan_deadlines(Situation(0, busy, (task("j", SLOW, FAST, deadline=9000),))), "j") == (
        "a",
        "slow",
        1000,
    )
    assert chosen(plan_deadlines(Situation(0, busy, (task("j", SLOW, FAST, deadline=4000),))), "j") == ("b", "fast", 0)


def test_energy_can_be_saved_instead_of_money() -> None:
    ways = (replace(SLOW, watts=500.0), replace(FAST, watts=100.0))
    made = plan_deadlines(Situation(0, SITES, (task("j", *ways, deadline=9000, saving=Saving.ENERGY),)))
    assert chosen(made, "j")[1] == "fast"


def test_uncertainty_counts_against_a_deadline_and_not_against_the_price() -> None:
    unsure = replace(SLOW, spread=0.5)
    made = plan_deadlines(Situation(0, SITES, (task("j", unsure, FAST, deadline=4000),)))
    assert chosen(made, "j")[1] == "fast"
    other = made.seats["j"].others[0]
    assert other.late == 3600 * 1.5 - 4000
    assert other.price == 1.0


def test_the_late_job_has_restartable_ones_stopped_if_that_costs_less() -> None:
    busy = {"b": site(0, (90_000, "fast", 1), fast=1)}
    room = Room(devices=(("fast", 1),))
    lazy = Holder("lazy", "b", room, 90_000, 30, task("lazy", FAST, weight=0))
    urgent = task("urgent", FAST, deadline=700)
    made = plan_deadlines(Situation(0, busy, (urgent,), (lazy,)))
    assert [stop.uid for stop in made.stops] == ["lazy"]
    assert chosen(made, "urgent") == ("b", "fast", 30)
    assert made.seats["urgent"].stops
    precious = Holder("precious", "b", room, 800, 30, task("precious", FAST, deadline=800, weight=1))
    sooner = {"b": site(0, (800, "fast", 1), fast=1)}
    assert plan_deadlines(Situation(0, sooner, (urgent,), (precious,))).stops == ()


def test_several_are_stopped_for_one_that_needs_much() -> None:
    busy = {"b": site(0, (90_000, "fast", 4), fast=4)}
    room = Room(devices=(("fast", 2),))
    holders = tuple(
        Holder(uid, "b", room, 90_000, 5, task(uid, way("b", "fast", 2, 600), weight=0)) for uid in ("x", "y")
    )
    made = plan_deadlines(Situation(0, busy, (task("wide", way("b", "fast", 4, 600), deadline=700),), holders))
    assert sorted(stop.uid for stop in made.stops) == ["x", "y"]


def test_a_running_job_is_moved_for_its_own_deadline() -> None:
    sites = {"a": site(0, (9000, "slow", 1), slow=1), "b": site(fast=1)}
    mover = Holder("m", "a", Room(devices=(("slow", 1),)), 9000, 5, task("m", SLOW, FAST, deadline=1000))
    assert [stop.uid for stop in plan_deadlines(Situation(0, sites, (), (mover,))).stops] == ["m"]
    calm = replace(mover, task=replace(mover.task, deadline=10_000))
    assert plan_deadlines(Situation(0, sites, (), (calm,))).stops == ()


def test_what_nobody_has_gets_no_seat_and_the_rest_goes_on() -> None:
    lost = task("lost", way("gone", "fast", 1, 10))
    large = task("large", way("b", "fast", 9, 10))
    made = plan_deadlines(Situation(0, SITES, (lost, large, task("fine", FAST, deadline=700))))
    assert set(made.seats) == {"fine"}


def test_more_than_can_be_planned_together_wait_behind_the_most_pressing() -> None:
    tasks = tuple(task(f"{n:04}", FAST, deadline=1000.0 + n) for n in range(MOST_TASKS + 5))
    made = plan_deadlines(Situation(0, SITES, tasks))
    assert made.crowded == {f"{n:04}" for n in range(MOST_TASKS, MOST_TASKS + 5)}


def test_the_optimiser_proposes_and_what_it_proposes_fits() -> None:
    tasks = tuple(task(f"j{n}", SLOW, FAST, deadline=4000.0) for n in range(3))
    situation = Situation(0, SITES, tasks)
    wishes = proposal(situation)
    assert wishes
    assert set(wishes) <= {"j0", "j1", "j2"}
    assert set(wishes.values()) <= {("a", ("slow", 1)), ("b", ("fast", 1))}
    made = plan_deadlines(replace(situation, proposals=(wishes,)))
    assert made.total <= plan_deadlines(situation).total + 1e-9


_COUNTS = {"a": {"slow": 3}, "b": {"fast": 2, "slow": 1}}


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    tasks = []
    for number in range(draw(st.integers(1, 8))):
        ways = tuple(
            way(name, device, count, draw(st.floats(1, 5000)), price=draw(st.floats(0, 20)))
            for name, devices in _COUNTS.items()
            for device, most in devices.items()
            for count in range(1, most + 1)
            if draw(st.booleans())
        )
        deadline, weight = draw(st.floats(-1000, 20_000)), draw(st.floats(0, 1))
        tasks.append(task(f"t{number}", *ways, deadline=deadline, weight=weight))
    taken = {name: [(draw(st.floats(1, 9000)), device, 1) for device in devices] for name, devices in _COUNTS.items()}
    holders = tuple(
        Holder(f"h-{name}", name, Room(devices=((device, 1),)), end, 5, task(f"h-{name}", way(name, device, 1, end)))
        for name, entries in taken.items()
        for end, device, _ in entries[:1]
        if draw(st.booleans())
    )
    sites = {name: site(0, *taken[name], **devices) for name, devices in _COUNTS.items()}
    return Situation(0, sites, tuple(tasks), holders)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(situations())
def test_no_device_is_given_twice_and_the_plan_is_never_worse_than_greedy(situation: Situation) -> None:
    made = plan_deadlines(situation)
    ordered = sorted((t for t in situation.tasks if t.ways), key=lambda t: (t.latest(), t.uid))
    assert made.total <= draft_of(situation, DraftOrder(tuple(ordered))).total + 1e-6
    stopped = {stop.uid: holder for stop in made.stops for holder in situation.holders if holder.uid == stop.uid}
    for name, devices in _COUNTS.items():
        line = situation.sites[name].copy()
        for holder in stopped.values():
            if holder.site == name:
                line.give(holder.room, situation.now + holder.grace, holder.end)
        for seat in made.seats.values():
            if seat.bid.way.site == name:
                line.take(seat.bid.way.room, seat.bid.start, seat.bid.start + seat.bid.way.cautious)
        assert all(amount >= 0 for free in line.amounts for amount in free), (name, devices)
    for uid, seat in made.seats.items():
        assert seat.bid.way in next(t for t in situation.tasks if t.uid == uid).ways
    assert plan_deadlines(situation) == made


def busy(seed: int) -> Situation:
    """Sixteen jobs, more than there is room for."""
    chance = Random(seed)
    devices = {"a": ("slow", 4, 1.0), "b": ("fast", 4, 6.0), "c": ("slow", 2, 0.8)}
    sites = {
        name: site(0, (chance.uniform(100, 9000), kind, 1), **{kind: most}) for name, (kind, most, _) in devices.items()
    }
    tasks = []
    for number in range(16):
        whole = chance.uniform(2000, 20_000)
        ways = [
            way(
                name, kind, count, whole / (4 if kind == "fast" else 1) / count ** chance.uniform(0.3, 0.9), price=price
            )
            for name, (kind, most, price) in devices.items()
            for count in range(1, most + 1)
        ]
        fastest = min(found.seconds for found in ways)
        deadline = chance.uniform(fastest, 3 * fastest)
        tasks.append(task(f"t{number:02}", *ways, deadline=deadline, weight=chance.uniform(0.003, 0.015)))
    return Situation(0, sites, tuple(tasks))


@pytest.mark.parametrize("seed", range(40))
def test_a_proposal_never_makes_a_plan_worse(seed: int) -> None:
    situation = busy(seed)
    proposed = replace(situation, proposals=(proposal(situation),))
    assert plan_deadlines(proposed).total <= plan_deadlines(situation).total + 1e-9
