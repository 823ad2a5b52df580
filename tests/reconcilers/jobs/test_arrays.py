"""Arrays: elements are made in a window, counted, and end, are cancelled and deleted together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from isthmus.engines.base import Run
from isthmus.resources.jobs import Job
from isthmus.store.base import Propagation
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.planes import Plane, with_plane

OPEN = Outcome(after=None)


async def counted(it: Plane, holds: Callable[[Job], bool]) -> Job:
    async def there() -> Job | None:
        job = await it.job("array")
        return job if job is not None and job.status.array is not None and holds(job) else None

    return await it.until(there)


async def elements(it: Plane) -> list[Job]:
    return [job for job in await it.jobs() if job.name.startswith("array-")]


@with_plane(cpus=100)
async def test_no_more_elements_are_active_than_the_limit_says(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("array", array={"indices": "0-9", "limit": 3})
    most = 0
    for _ in range(10):
        await it.until(lambda: running(it))
        active = [job for job in await elements(it) if not job.status.phase.terminal]
        most = max(most, len(active))
        it.machine.end((await running(it))[0])
        await asyncio.sleep(1)
    assert most == 3
    ended = await it.ended("array")
    assert (ended.status.phase, ended.status.array and ended.status.array.succeeded) == ("Succeeded", 10)
    assert len(it.machine.starts) == 10


async def running(it: Plane) -> list[str]:
    await asyncio.sleep(0)
    return [run_id for run_id, run in it.machine.runs.items() if run.seen.state.value == "Running"]


@with_plane(cpus=1000)
async def test_indices_reach_the_elements(it: Plane) -> None:
    seen: set[str] = set()

    def outcome(run: Run) -> Outcome:
        seen.add(run.env["ISTHMUS_ARRAY_INDEX"])
        return Outcome()

    it.machine.outcome = outcome
    await it.submit("array", array={"indices": "1-9:4,20"})
    await it.ended("array")
    assert seen == {"1", "5", "9", "20"}


@with_plane(cpus=100)
async def test_one_failed_element_fails_the_array_when_all_have_ended(it: Plane) -> None:
    it.machine.outcome = lambda run: Outcome(after=1.0, exit_code=3 if run.job == "array-2" else 0)
    await it.submit("array", array={"indices": "0-4"})
    ended = await it.ended("array")
    assert (ended.status.phase, ended.status.reason) == ("Failed", "ElementsFailed")
    assert ended.status.array is not None
    assert (ended.status.array.succeeded, ended.status.array.failed) == (4, 1)


@with_plane(cpus=100)
async def test_elements_are_tried_again_by_themselves(it: Plane) -> None:
    it.machine.outcome = lambda run: Outcome(exit_code=0 if run.id.endswith(".1") else 1)
    await it.submit("array", array={"indices": "0-2"}, retries={"limit": 1, "backoff": "5s"})
    assert (await it.ended("array")).status.phase == "Succeeded"
    assert {job.status.attempt for job in await elements(it)} == {1}


@with_plane(cpus=100)
async def test_a_held_array_makes_no_more_elements_until_it_is_released(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=10.0)
    await it.submit("array", array={"indices": "0-9", "limit": 2})
    await it.until(lambda: running(it))
    await it.change("array", intent="Hold")
    await asyncio.sleep(300)
    made = len(await elements(it))
    assert made < 10
    await it.change("array", intent="Run")
    assert (await it.ended("array")).status.phase == "Succeeded"
    assert len(await elements(it)) == 10


@with_plane(cpus=100)
async def test_a_cancel_reaches_every_element_and_no_more_are_made(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("array", array={"indices": "0-99", "limit": 4})
    await counted(it, lambda job: bool(job.status.array and job.status.array.active == 4))
    await it.change("array", intent="Cancel")
    ended = await it.ended("array")
    assert ended.status.phase == "Cancelled"
    assert "4 of 100" in (ended.status.message or "")
    assert {job.status.phase.value for job in await elements(it)} == {"Cancelled"}


@with_plane(cpus=100)
async def test_elements_go_with_their_array(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("array", array={"indices": "0-4"})
    await counted(it, lambda job: bool(job.status.array and job.status.array.active == 5))
    await it.delete("array", propagation=Propagation.FOREGROUND)
    await it.gone("array")
    assert not await elements(it)
    assert not it.machine.runs


@with_plane(cpus=100)
async def test_the_next_term_makes_no_element_twice(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=5.0)
    await it.submit("array", array={"indices": "0-19", "limit": 5})
    for _ in range(4):
        await asyncio.sleep(4)
        await it.stop()
        it.start()
    ended = await it.ended("array")
    assert (ended.status.phase, ended.status.array and ended.status.array.succeeded) == ("Succeeded", 20)
    assert len(it.machine.starts) == 20
    assert set(it.machine.starts.values()) == {1}
