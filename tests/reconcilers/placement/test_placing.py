"""Placing: who gets room, in which order, and what the others are told."""

from __future__ import annotations

import asyncio

from isthmus.resources.kinds import SITE, TENANT
from isthmus.store.base import Key
from isthmus.testing.fake_engine import FakeMachine, Outcome
from isthmus.testing.planes import Plane, with_plane

OPEN = Outcome(after=None)
DEFAULT = Key(TENANT.name, "", "default")


@with_plane(cpus=2)
async def test_what_does_not_fit_waits_and_starts_when_there_is_room(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=10.0)
    for number in range(6):
        await it.submit(f"job-{number}")
    await it.waits("job-5", "InsufficientRoom")
    await it.all_ended()
    assert it.most_taken <= 2


@with_plane(cpus=2)
async def test_what_fits_nowhere_says_so_and_starts_when_a_site_comes(it: Plane) -> None:
    await it.submit("large", resources={"cpus": "8"})
    waiting = await it.waits("large", "NoSiteFits")
    assert "fake" in (waiting.status.message or "")
    it.machines["big"] = FakeMachine(cpus=16)
    it.machines["big"].now = it.now
    await it.create(SITE, "big", {"driver": "fake"})
    ended = await it.ended("large")
    assert (ended.status.phase, ended.status.site) == ("Succeeded", "big")


@with_plane(cpus=1)
async def test_who_matters_more_goes_first(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=5.0)
    await it.submit("now")
    await it.phase("now", "Running")
    await it.submit("low", priority=-5)
    await it.submit("high", priority=50)
    await it.all_ended()
    order = [run.run.job for run in it.machine.runs.values()]
    assert order == ["now", "high", "low"]


@with_plane(cpus=10)
async def test_a_full_quota_makes_the_next_job_wait_until_another_ends(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.change_object(TENANT, DEFAULT, quota={"jobs": 2})
    for name in ("a", "b"):
        await it.submit(name)
    first = await it.phase("a", "Running")
    await it.phase("b", "Running")
    await it.submit("c")
    await it.waits("c", "QuotaExceeded")
    it.machine.end(first.run_id)
    await it.phase("c", "Running")
    assert len(it.machine.runs) == 3


@with_plane(cpus=10)
async def test_a_quota_that_is_raised_lets_the_waiting_go(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.change_object(TENANT, DEFAULT, quota={"cpus": "1"})
    await it.submit("a")
    await it.phase("a", "Running")
    await it.submit("b")
    await it.waits("b", "QuotaExceeded")
    await it.change_object(TENANT, DEFAULT, quota={"cpus": "2"})
    await it.phase("b", "Running", seconds=60)


@with_plane(cpus=10)
async def test_a_suspended_tenant_gets_nothing_new(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("before")
    await it.phase("before", "Running")
    await it.change_object(TENANT, DEFAULT, suspended=True)
    await it.status(TENANT, "default", phase="Suspended")
    await it.submit("after")
    await asyncio.sleep(300)
    after, before = await it.job("after"), await it.job("before")
    assert after is not None
    assert before is not None
    assert (before.status.phase, after.status.phase) == ("Running", "Pending")
    await it.change_object(TENANT, DEFAULT, suspended=False)
    await it.phase("after", "Running", seconds=60)


@with_plane(cpus=4)
async def test_a_write_that_is_refused_is_planned_again(it: Plane) -> None:
    it.store.conflicts = 0.5
    for number in range(20):
        await it.submit(f"job-{number}")
    for job in await it.all_ended():
        assert job.status.phase == "Succeeded"
    assert set(it.machine.starts.values()) == {1}
