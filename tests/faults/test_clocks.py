"""A wall clock that jumps, by hours, while jobs wait, back off and run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus.engines.base import Run
from isthmus.testing.fake_engine import Outcome

RunOnVirtualTime = Callable[[Coroutine[Any, Any, Any]], Any]
JUMPS = [timedelta(hours=5), timedelta(hours=-5)]


def held(_: Run) -> Outcome:
    return Outcome(after=None)


@pytest.mark.parametrize("jump", JUMPS, ids=["forward", "back"])
def test_a_retry_comes_within_its_backoff_whatever_the_clock_does(
    plane: Any, on_virtual_time: RunOnVirtualTime, jump: timedelta
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda _: Outcome(exit_code=1)
            await it.submit("job", retries={"limit": 1, "backoff": "60s", "maxBackoff": "2m"})

            async def backs_off() -> bool:
                return bool((await it.job("job")).status.reason == "BackingOff")

            await it.until(backs_off)
            it.shift += jump
            ended = await it.ended("job", seconds=300)
            assert (ended.status.phase, ended.status.attempt) == ("Failed", 1)

    on_virtual_time(story())


@pytest.mark.parametrize("jump", JUMPS, ids=["forward", "back"])
def test_running_and_waiting_jobs_do_not_mind(plane: Any, on_virtual_time: RunOnVirtualTime, jump: timedelta) -> None:
    async def story() -> None:
        async with plane(cpus=1) as it:
            it.machine.outcome = lambda _: Outcome(after=30.0)
            await it.submit("runs")
            await it.phase("runs", "Running")
            await it.submit("waits")
            await it.submit("follows", dependencies=[{"job": "waits"}])
            it.shift += jump
            await asyncio.sleep(10)
            assert (await it.job("runs")).status.phase == "Running"
            for name in ("runs", "waits", "follows"):
                assert (await it.ended(name, seconds=300)).status.phase == "Succeeded"

    on_virtual_time(story())


def test_a_deadline_that_a_jump_passes_is_marked_and_nothing_more(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("job", deadline=timestamp(it.now() + timedelta(hours=1)))
            job = await it.phase("job", "Running")
            it.shift += timedelta(hours=5)

            async def marked() -> bool:
                return any(c.type == "DeadlineMissed" for c in (await it.job("job")).status.conditions)

            await it.until(marked, seconds=7200)
            it.shift -= timedelta(hours=10)
            it.machine.end(job.run_id)
            assert (await it.ended("job")).status.phase == "Succeeded"

    on_virtual_time(story())


def test_a_finished_job_is_kept_for_its_time_also_when_that_was_set_afterwards(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            await it.submit("job")
            ended = await it.ended("job")
            await it.change("job", ttlAfterFinished="1h")
            await asyncio.sleep(3000)
            assert await it.job("job") is not None
            await it.gone("job", seconds=1200)
            assert it.now() - parse_timestamp(ended.status.finished_at or "") >= timedelta(hours=1)

    on_virtual_time(story())
