"""A store that is away, full or locked while jobs wait and run, and writes that somebody else was faster with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.engines.base import Run
from isthmus.errors import StoreUnavailable
from isthmus.resources.kinds import JOB
from isthmus.testing.fake_engine import FakeEngine, Outcome

RunOnVirtualTime = Callable[[Coroutine[Any, Any, Any]], Any]


def held(_: Run) -> Outcome:
    return Outcome(after=None)


def test_a_store_that_is_away_while_jobs_wait_does_not_end_the_control_plane(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane(cpus=1) as it:
            it.machine.outcome = held
            await it.submit("first")
            first = await it.phase("first", "Running")
            await it.submit("waits")
            it.store.away = True
            await it.submit("waits-too", resources={"cpus": "2"})  # to be told why it waits: a write that fails
            await asyncio.sleep(300)
            assert not it.task.done()
            it.store.away = False
            it.machine.end(first.run_id)
            waits = await it.phase("waits", "Running")
            it.machine.end(waits.run_id)
            assert (await it.ended("waits")).status.phase == "Succeeded"

            async def reported() -> bool:
                return bool((await it.job("waits-too")).status.reason == "NoSiteFits")

            await it.until(reported)

    on_virtual_time(story())


def test_a_waiting_job_that_is_deleted_while_it_is_told_why_it_waits_disturbs_nobody(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane(cpus=1) as it:
            it.machine.outcome = held
            await it.submit("first")
            await it.phase("first", "Running")
            update = it.store.update

            async def deleted_first(kind: Any, obj: Any, part: Any = None) -> Any:
                if obj["metadata"]["name"] == "waits":
                    await it.delete("waits")
                return await update(kind, obj, part)

            it.store.update = deleted_first
            await it.submit("waits")
            await it.gone("waits")
            await asyncio.sleep(60)
            assert not it.task.done()
            await it.submit("small", resources={"cpus": "0.1"})
            await it.change("first", intent="Cancel")
            await it.phase("small", "Running")

    on_virtual_time(story())


def test_conflicts_on_nearly_every_write_only_delay(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=8) as it:
            it.store.conflicts = 0.9
            for number in range(20):
                await it.submit(f"job-{number}")
            jobs = await it.all_ended()
            assert {job.status.phase for job in jobs} == {"Succeeded"}
            assert set(it.machine.starts.values()) == {1}

    on_virtual_time(story())


def test_answers_of_the_store_that_are_lost_only_delay(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=8) as it:
            it.store.lost = 0.5
            it.machine.outcome = lambda _: Outcome(after=1.0)
            for number in range(20):
                await it.submit(f"job-{number}")
            await it.submit("array", array={"indices": "0-9", "limit": 3})
            jobs = await it.all_ended()
            assert {job.status.phase for job in jobs} == {"Succeeded"}
            assert len(jobs) == 31
            assert set(it.machine.starts.values()) == {1}
            assert it.most_taken <= 8

    on_virtual_time(story())


def test_a_run_that_was_seen_to_run_is_not_started_again_although_the_news_are_late(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    """The store has `Running`, the answer to that write is lost, no watch tells of it, and the engine loses the run."""

    async def story() -> None:
        async with plane() as it:
            it.machine.outcome, update = held, it.store.update

            async def lost(kind: Any, obj: Any, part: Any = None) -> Any:
                if kind is not JOB or obj["status"]["phase"] != "Running":
                    return await update(kind, obj, part)
                it.store.update, it.store.blind = update, True
                it.store.disconnect()
                record = await update(kind, obj, part)
                it.machine.vanish(f"{record.uid}.0")
                raise StoreUnavailable("the answer was lost")

            it.store.update = lost
            await it.submit("job")
            assert (await it.ended("job")).status.reason == "NodeLost"
            assert it.store.blind
            assert max(it.machine.starts.values()) == 1

    on_virtual_time(story())


def test_a_first_submission_asks_the_store_nothing(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            get, asked = it.store.get, list[Any]()

            async def counted(key: Any) -> Any:
                asked.append(key)
                return await get(key)

            it.store.get = counted
            for number in range(20):
                await it.submit(f"job-{number}")
            await it.all_ended()
            assert [key for key in asked if key.kind == JOB.name] == []

    on_virtual_time(story())


def test_who_lost_the_lead_starts_and_writes_nothing(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("before")
            before = await it.phase("before", "Running")
            await asyncio.sleep(1)  # what is in the store may not have been answered yet
            it.leadership.leads = False
            written = len(it.store.updates)
            await it.submit("after")
            it.machine.end(before.run_id)
            await asyncio.sleep(300)
            assert len(it.store.updates) == written
            assert len(it.machine.starts) == 1
            it.leadership.leads = True
            assert (await it.ended("before")).status.phase == "Succeeded"
            await it.phase("after", "Running")

    on_virtual_time(story())


@pytest.mark.parametrize("wish", ["none", "cancel", "delete"])
def test_a_submission_that_outlives_its_control_planes_lead_starts_nothing_that_nobody_wants(
    plane: Any, on_virtual_time: RunOnVirtualTime, wish: str
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            slow = asyncio.Event()

            async def make_slow(site: Any) -> Any:
                engine = FakeEngine(it.machine)
                reach = engine.submit

                async def late(run: Run, files: Any = None) -> Any:
                    slow.set()
                    await asyncio.sleep(60)  # longer than any lease
                    return await reach(run, files)

                engine.submit = late  # type: ignore[method-assign]
                return engine

            await it.stop()
            it.make_engine = make_slow
            it.start()
            first, old = it.task, it.leadership
            await it.submit("job")
            await slow.wait()
            old.leads = False  # it does not know yet, and its submission is on its way
            it.leadership = type(old)()
            it.make_engine = type(it).make_engine.__get__(it)
            if wish == "cancel":
                await it.change("job", intent="Cancel")
            elif wish == "delete":
                await it.delete("job")
            it.start()
            if wish == "none":
                await it.phase("job", "Running")
            elif wish == "cancel":
                assert (await it.ended("job")).status.phase == "Cancelled"
            else:
                await it.gone("job")
            await asyncio.sleep(120)
            assert sum(it.machine.starts.values()) == (1 if wish == "none" else 0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    on_virtual_time(story())
