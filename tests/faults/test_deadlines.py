"""Jobs with deadlines through a whole control plane, on virtual time and fake machines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from isthmus._kit.clock import timestamp
from isthmus.reconcilers.placement import planning, profiling
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import DEVICE_CLASS, PROFILE, SITE, TENANT
from isthmus.scheduling.planning.planning import Outlook
from isthmus.store.base import Key, Query
from isthmus.testing.fake_engine import FakeMachine, Outcome

from .conftest import MakePlane, Plane

Run = Callable[[Coroutine[Any, Any, None]], None]
ANY = {"anyOf": [{"class": "slow", "counts": [1]}, {"class": "fast", "counts": [1]}]}
TIMES = [{"class": "slow", "duration": "1h"}, {"class": "fast", "duration": "10m"}]
NEVER = Outcome(after=None)


async def two_sites(it: Plane, **fast: int) -> None:
    """A site with a cheap slow board beside one with a dear fast one."""
    it.machines = {"old": FakeMachine(cpus=4, devices={"slow": 1}), "new": FakeMachine(cpus=4, devices={"fast": 1})}
    for machine in it.machines.values():
        machine.now = it.now
        machine.outcome = lambda _run: NEVER
    await it.create(DEVICE_CLASS, "slow", {"pricePerHour": 1})
    await it.create(DEVICE_CLASS, "fast", {"pricePerHour": 20, "power": {"busyWatts": 300}})
    for name in it.machines:
        await it.create(SITE, name, {"driver": "fake", "probeInterval": "2s"})

    async def ready() -> bool:
        sites = (await it.real.list(Query(SITE))).records
        return all(site.obj["status"].get("phase") == "Ready" for site in sites)

    await it.until(ready)


def due(it: Plane, **ahead: float) -> str:
    """A deadline so far from now."""
    return timestamp(it.now() + timedelta(**ahead))


async def reason(it: Plane, name: str, *reasons: str) -> Job:
    """The job once its status names one of the reasons."""

    async def there() -> Job | None:
        job = await it.job(name)
        return job if job is not None and job.status.reason in reasons else None

    return await it.until(there)


def test_the_deadline_decides_between_cheap_and_fast(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            await it.submit("calm", deadline=due(it, hours=5), profile=TIMES, resources=ANY)
            calm = await it.phase("calm", "Running")
            assert (calm.status.site, calm.status.chosen and calm.status.chosen.class_) == ("old", "slow")
            await it.submit("pressed", deadline=due(it, minutes=20), profile=TIMES, resources=ANY)
            pressed = await it.phase("pressed", "Running")
            assert (pressed.status.site, pressed.status.chosen and pressed.status.chosen.class_) == ("new", "fast")
            plan = pressed.status.plan
            assert plan is not None
            assert plan.chosen is not None
            assert plan.chosen.meets_deadline
            assert abs(plan.chosen.cost - 20 / 6) < 0.01
            assert plan.chosen.energy_joules == 300 * 600
            assert [(o.site, o.meets_deadline) for o in plan.alternatives] == [("old", False)]
            assert "meets the deadline" in plan.message
            run = it.machines["new"].runs[pressed.run_id].run
            assert run.devices == {"fast": 1}
            assert run.env["ISTHMUS_DEVICE"] == "fast"

    on_virtual_time(scenario())


def test_a_restartable_job_makes_room_and_goes_on_later(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            fast = {"devices": [{"class": "fast"}]}
            await it.submit("long", restartable={}, resources={**fast, "timeLimit": "9h"})
            first = await it.phase("long", "Running")
            await it.submit("pressed", deadline=due(it, minutes=20), profile=[{"duration": "10m"}], resources=fast)
            pressed = await it.phase("pressed", "Running")
            stopped = await it.job("long")
            assert stopped is not None
            assert (stopped.status.phase, stopped.status.attempt) == ("Pending", 1)
            assert [past.reason for past in stopped.status.tries or ()] == ["Preempted"]
            it.machines["new"].end(pressed.run_id)
            again = await it.phase("long", "Running")
            it.machines["new"].end(again.run_id)
            assert (await it.ended("long")).status.phase == "Succeeded"
            starts = it.machines["new"].starts
            assert starts == {first.run_id: 1, pressed.run_id: 1, again.run_id: 1}

    on_virtual_time(scenario())


def test_a_job_that_is_not_restartable_is_never_stopped(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            fast = {"devices": [{"class": "fast"}]}
            await it.submit("long", resources={**fast, "timeLimit": "9h"})
            await it.phase("long", "Running")
            await it.submit("pressed", deadline=due(it, minutes=20), profile=[{"duration": "10m"}], resources=fast)
            pressed = await reason(it, "pressed", "Planned")
            assert pressed.status.plan is not None
            assert "late" in pressed.status.plan.message
            long = await it.job("long")
            assert long is not None
            assert long.status.phase == "Running"
            assert not it.machines["new"].cancels

    on_virtual_time(scenario())


def test_what_was_measured_is_believed_from_then_on(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            for machine in it.machines.values():
                machine.outcome = lambda _run: Outcome(after=120)
            await it.submit("first", command=["train"], resources={"devices": [{"class": "slow"}]})
            assert (await it.ended("first")).status.phase == "Succeeded"

            async def written() -> bool:
                return bool((await it.real.list(Query(PROFILE, "default"))).records)

            await it.until(written)
            await it.submit("second", command=["train"], deadline=due(it, hours=1), resources=ANY)
            second = await it.ended("second")
            assert second.status.plan is not None
            chosen = second.status.plan.chosen
            assert chosen is not None
            assert (chosen.class_, chosen.source) == ("slow", "PastRuns")
            assert abs(chosen.seconds - 120) < 5
            assert any(reported.startswith("fast: there is neither") for reported in second.status.plan.left_out)

    on_virtual_time(scenario())


def test_bad_wishes_get_a_clear_status_and_the_rest_goes_on(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            await it.submit("nobody-has-it", deadline=due(it, hours=1), resources={"anyOf": [{"class": "quantum"}]})
            odd = await reason(it, "nobody-has-it", "NoSiteFits")
            assert odd.status.message is not None
            assert "new: it has no quantum" in odd.status.message
            await it.submit("too-late", deadline=due(it, hours=-1), profile=TIMES, resources=ANY)
            late = await it.phase("too-late", "Running")
            assert late.status.plan is not None
            assert "the deadline has passed" in late.status.plan.message
            assert any(condition.type == "DeadlineMissed" for condition in late.status.conditions)
            await it.submit("unknown", deadline=due(it, hours=9), resources=ANY)
            unknown = await it.phase("unknown", "Running")
            assert unknown.status.plan is not None
            assert unknown.status.plan.chosen is not None
            assert unknown.status.plan.chosen.source == "Assumed"
            assert "an hour is assumed" in unknown.status.plan.message
            await it.submit("plain")
            await it.ended("plain")

    on_virtual_time(scenario())


def test_a_site_that_disappears_mid_plan_is_planned_around(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            await it.submit("calm", deadline=due(it, hours=5), profile=TIMES, resources=ANY, restartable={})
            calm = await it.phase("calm", "Running")
            assert calm.status.site == "old"
            it.machines["old"].vanish(calm.run_id)
            it.machines["old"].faults.unavailable = "gone"
            await it.real.delete(Key(SITE.name, "", "old"))
            await it.submit("other", deadline=due(it, hours=5), profile=TIMES, resources=ANY)
            assert (await it.phase("other", "Running")).status.site == "new"

    on_virtual_time(scenario())


def test_a_run_that_its_machine_lost_goes_on_elsewhere_if_it_is_restartable(
    on_virtual_time: Run, plane: MakePlane
) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            await it.submit("calm", deadline=due(it, hours=5), profile=TIMES, resources=ANY, restartable={})
            calm = await it.phase("calm", "Running")
            it.machines["old"].vanish(calm.run_id)

            async def again() -> Job | None:
                job = await it.job("calm")
                return job if job is not None and job.status.attempt == 1 and job.status.phase == "Running" else None

            found = await it.until(again)
            assert [past.reason for past in found.status.tries or ()] == ["NodeLost"]

    on_virtual_time(scenario())


def test_jobs_without_deadlines_leave_free_what_a_promise_needs(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            fast = {"devices": [{"class": "fast"}]}
            await it.submit("first", resources={**fast, "timeLimit": "1h"})
            first = await it.phase("first", "Running")
            await it.submit("promised", deadline=due(it, hours=3), profile=[{"duration": "10m"}], resources=fast)
            await reason(it, "promised", "Planned")
            await it.submit("plain", resources=fast, priority=100)
            await reason(it, "plain", "InsufficientRoom")
            it.machines["new"].end(first.run_id)
            promised = await it.phase("promised", "Running")
            plain = await it.job("plain")
            assert plain is not None
            assert plain.status.phase == "Pending"
            it.machines["new"].end(promised.run_id)
            await it.phase("plain", "Running")

    on_virtual_time(scenario())


def test_quotas_hold_for_jobs_with_deadlines_too(on_virtual_time: Run, plane: MakePlane) -> None:
    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            record = await it.real.get(Key(TENANT.name, "", "default"))
            await it.real.update(TENANT, {**record.obj, "spec": {"quota": {"jobs": 1}}})
            await it.submit("one", deadline=due(it, hours=5), profile=TIMES, resources=ANY)
            one = await it.phase("one", "Running")
            await it.submit("two", deadline=due(it, minutes=20), profile=TIMES, resources=ANY)
            two = await reason(it, "two", "QuotaExceeded")
            assert two.status.phase == "Pending"
            it.machines["old"].end(one.run_id)
            await it.phase("two", "Running")

    on_virtual_time(scenario())


def test_only_so_many_profiles_are_kept(
    on_virtual_time: Run, plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "KEPT_PER_TENANT", 2)

    async def scenario() -> None:
        async with plane(cpus=1) as it:
            it.machine.outcome = lambda _run: Outcome(after=10)
            for number in range(4):
                await it.submit(f"job-{number}", command=["work", str(number)])
                await it.ended(f"job-{number}")

                async def written(wanted: int = min(number + 1, 2), runs: str = f"job-{number}") -> bool:
                    records = (await it.real.list(Query(PROFILE, "default"))).records
                    ended = await it.job(runs)
                    assert ended is not None
                    last = [record.obj["spec"]["lastRun"] for record in records]
                    return len(records) == wanted and ended.status.finished_at in last

                await it.until(written)

    on_virtual_time(scenario())


def test_a_planner_that_breaks_leaves_the_others_alone(
    on_virtual_time: Run, plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_situation: object) -> Outlook:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with plane(cpus=1) as it:
            await two_sites(it)
            with monkeypatch.context() as patch:
                patch.setattr(planning, "planned", broken)
                await it.submit("promised", deadline=due(it, hours=5), profile=TIMES, resources=ANY)
                await it.submit("plain")
                assert (await it.ended("plain")).status.phase == "Succeeded"
            await it.phase("promised", "Running")

    on_virtual_time(scenario())
