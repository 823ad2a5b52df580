"""Arrays, dependencies and deletions at the worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.engines.base import Run
from isthmus.resources.kinds import JOB, TENANT
from isthmus.store.base import Key, Propagation
from isthmus.testing.fake_engine import Outcome

RunOnVirtualTime = Callable[[Coroutine[Any, Any, Any]], Any]


def held(_: Run) -> Outcome:
    return Outcome(after=None)


def test_an_array_ends_though_elements_were_deleted(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda run: Outcome(after=1.0, exit_code=1 if run.job == "array-0" else 0)
            await it.submit("array", array={"indices": "0-9", "limit": 2})
            await it.ended("array-0")
            await asyncio.sleep(1)
            await it.delete("array-0")
            await it.phase("array-4", "Running")
            await it.delete("array-4")
            ended = await it.ended("array", seconds=300)
            assert (ended.status.phase, ended.status.array.failed) == ("Failed", 1)

    on_virtual_time(story())


def test_an_array_whose_finished_elements_are_to_be_removed_still_ends(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda _: Outcome(after=10.0)
            await it.submit("array", array={"indices": "0-19", "limit": 1}, ttlAfterFinished="15s")
            ended = await it.ended("array", seconds=600)
            assert (ended.status.phase, ended.status.array.succeeded) == ("Succeeded", 20)
            await it.gone("array", seconds=60)
            await it.gone("array-0", seconds=60)

    on_virtual_time(story())


def test_an_array_waits_for_its_dependencies_as_a_whole(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda run: Outcome(after=None if run.job == "first" else 5.0)
            await it.submit("first")
            await it.submit("array", dependencies=[{"job": "first"}], array={"indices": "0-5", "limit": 1})

            async def reported() -> bool:
                return bool((await it.job("array")).status.reason == "DependencyWaiting")

            await it.until(reported)
            assert await it.job("array-0") is None
            first = await it.phase("first", "Running")
            it.machine.end(first.run_id)
            await it.ended("first")
            await it.phase("array-0", "Running")
            await it.delete("first")  # later elements must not wait for it again
            ended = await it.ended("array", seconds=300)
            assert (ended.status.phase, ended.status.array.succeeded) == ("Succeeded", 6)

    on_virtual_time(story())


def test_who_waits_for_an_array_to_start_starts(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("array", array={"indices": "0-1"})
            await it.submit("then", dependencies=[{"job": "array", "condition": "Started"}])
            await it.phase("then", "Running", seconds=60)

    on_virtual_time(story())


def test_an_array_made_again_waits_until_the_old_elements_are_gone(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("array", array={"indices": "0-2"})
            await it.phase("array-2", "Running")
            it.machine.faults.unavailable = "away"  # so that the old elements cannot go yet
            await it.delete("array")
            await it.gone("array")
            assert (await it.job("array-0")).metadata.deletion_timestamp
            await it.submit("array", array={"indices": "0-2"})
            await asyncio.sleep(120)
            assert not (await it.job("array")).status.phase.terminal
            it.machine.outcome = lambda _: Outcome()
            it.machine.faults.unavailable = ""
            assert (await it.ended("array")).status.phase == "Succeeded"

    on_virtual_time(story())


def test_a_name_that_is_taken_is_told(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            await it.submit("array-1")
            await it.submit("array", array={"indices": "0-2"})
            ended = await it.ended("array")
            assert (ended.status.phase, ended.status.reason) == ("Failed", "NameTaken")

    on_virtual_time(story())


def test_labels_and_owners_changed_by_hand_do_not_hold_an_array_up(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("array", array={"indices": "0-2"})
            runs = [(await it.phase(f"array-{n}", "Running")).run_id for n in range(3)]
            for name, field in (("array-0", "labels"), ("array-1", "ownerReferences")):
                record = await it.real.get(Key(JOB.name, "default", name))
                metadata = {k: v for k, v in record.obj["metadata"].items() if k != field}
                await it.real.update(JOB, {**record.obj, "metadata": metadata})
            await asyncio.sleep(1)
            for run in runs:
                it.machine.end(run)
            assert (await it.ended("array", seconds=60)).status.phase == "Succeeded"

    on_virtual_time(story())


def test_an_array_deleted_while_it_makes_its_elements_leaves_none(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda _: Outcome(after=0.5)
            await it.submit("array", array={"indices": "0-4999"})
            await it.phase("array-150", "Pending", "Running", "Placed", "Succeeded")
            await it.delete("array")

            async def nothing() -> bool:
                return not await it.jobs()

            await it.until(nothing)

    on_virtual_time(story())


def test_an_array_of_a_hundred_thousand_starts_at_once_and_can_be_cancelled(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("array", array={"indices": "0-99999"})
            await it.phase("array-0", "Running")
            made = len(await it.jobs())
            assert made < 2000
            await it.change("array", intent="Cancel")
            ended = await it.ended("array")
            assert ended.status.phase == "Cancelled"
            assert ended.status.array.active == 0
            assert {job.status.phase for job in await it.jobs()} == {"Cancelled"}

    on_virtual_time(story())


@pytest.mark.parametrize("size", [1, 2, 5])
def test_jobs_that_wait_for_each_other_in_a_circle_are_told(
    plane: Any, on_virtual_time: RunOnVirtualTime, size: int
) -> None:
    async def story() -> None:
        async with plane() as it:
            for number in range(size):
                following = f"job-{(number + 1) % size}"
                await it.submit(f"job-{number}", dependencies=[{"job": following}])
            jobs = await it.all_ended(seconds=60)
            assert {job.status.phase for job in jobs} == {"Cancelled"}
            assert any(job.status.reason == "DependencyCircle" for job in jobs)
            assert not it.machine.starts

    on_virtual_time(story())


# Deletion in every phase


def test_a_deleted_job_keeps_its_room_until_its_run_has_ended(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=1) as it:
            it.machine.outcome = held
            await it.submit("job")
            await it.phase("job", "Running")
            it.machine.faults.unavailable = "away"
            await it.delete("job")
            await it.submit("next")
            await asyncio.sleep(120)
            assert (await it.job("next")).status.phase == "Pending"
            it.machine.faults.unavailable = ""
            await it.phase("next", "Running")
            assert it.most_taken == 1

    on_virtual_time(story())


@pytest.mark.parametrize("phase", ["Pending", "Held", "Placed", "Running", "Finishing", "BackingOff", "Succeeded"])
def test_a_job_deleted_in_any_phase_goes_and_leaves_nothing(
    plane: Any, on_virtual_time: RunOnVirtualTime, phase: str
) -> None:
    async def story() -> None:
        async with plane() as it:
            await reach(it, phase)
            await it.delete("job")
            await asyncio.sleep(5)
            it.machine.faults.unavailable = ""
            await it.gone("job", seconds=300)
            assert not it.machine.runs
            await it.submit("next", resources={"cpus": "4"})
            await it.phase("next", "Running", "Succeeded", "Failed", seconds=60)

    on_virtual_time(story())


async def reach(it: Any, phase: str) -> None:
    """Bring a job into a phase, and keep it there."""
    if phase == "Pending":
        await it.submit("job", resources={"cpus": "100"})
    elif phase == "Held":
        await it.submit("job", intent="Hold")
    elif phase == "Placed":
        it.machine.faults.delay = 0.5
        await it.submit("job")
        await it.phase("job", "Placed")
        it.machine.faults.unavailable = "away"
        it.machine.faults.delay = 0.0
    elif phase == "Succeeded":
        await it.submit("job")
        await it.ended("job")
    elif phase == "BackingOff":
        it.machine.outcome = lambda _: Outcome(exit_code=1)
        await it.submit("job", retries={"limit": 5, "backoff": "1h", "maxBackoff": "2h"})

        async def backs_off() -> bool:
            return bool((await it.job("job")).status.reason == "BackingOff")

        await it.until(backs_off)
    else:
        it.machine.outcome = held
        await it.submit("job", outputs=["kept"])
        job = await it.phase("job", "Running")
        if phase == "Finishing":
            it.blobs.put_file = it.blobs.put_tree = _full
            it.machine.end(job.run_id)
            await it.phase("job", "Finishing")


async def _full(*_: Any) -> Any:
    from isthmus.errors import StoreUnavailable

    raise StoreUnavailable("the disk is full")


@pytest.mark.parametrize("propagation", list(Propagation))
def test_a_tenant_deleted_with_jobs_in_every_phase_goes(
    plane: Any, on_virtual_time: RunOnVirtualTime, propagation: Propagation
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("array", array={"indices": "0-9"})
            await it.submit("runs", priority=5)
            await it.submit("held", intent="Hold")
            await it.submit("follows", dependencies=[{"job": "runs"}])
            await it.phase("runs", "Running")
            await it.real.delete(Key(TENANT.name, "", "default"), propagation=propagation)

            async def nothing() -> bool:
                return not await it.jobs() and not (await it.real.list(_tenants())).records

            await it.until(nothing, seconds=300)
            assert not it.machine.runs

    on_virtual_time(story())


def _tenants() -> Any:
    from isthmus.store.base import Query

    return Query(TENANT)
