from __future__ import annotations

import asyncio

import pytest

from isthmus.errors import Conflict, Unavailable
from isthmus.runtime.controllers import DONE, Controller, Result
from isthmus.runtime.queues import WorkQueue
from isthmus.store.base import Key

pytestmark = pytest.mark.anyio
A, B = Key("Job", "t", "a"), Key("Job", "t", "b")


async def test_a_key_waits_at_most_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_what_has_happened_comes_before_what_is_to_be_begun() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("new")
    queue.add("newer")
    queue.add_first("ended")
    queue.add_first("ended")
    assert len(queue) == 3
    assert [await queue.get(), await queue.get(), await queue.get()] == ["ended", "new", "newer"]
    queue.add_first("ended")
    assert len(queue) == 0, "it is being handled"
    queue.done("ended")
    assert await queue.get() == "ended"


async def test_what_happens_to_a_key_that_waits_or_is_handled_comes_first_as_well() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("begun", "new", "newer", "ended"):
        queue.add(key)
    assert await queue.get() == "begun"
    queue.add_first("begun")
    queue.add("begun")
    queue.add_first("ended")
    queue.done("begun")
    assert len(queue) == 4
    assert [await queue.get() for _ in range(2)] == ["ended", "begun"]
    queue.done("ended")
    queue.add("ended")
    assert [await queue.get() for _ in range(3)] == ["new", "newer", "ended"]
    assert len(queue) == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 0.01)


async def test_a_key_added_while_it_is_handled_is_handled_again_and_never_twice_at_a_time() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_the_earlier_of_two_appointments_wins() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.01)
    queue.add_after("a", 1800)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.close()


async def test_failures_wait_longer_each_time_until_success() -> None:
    queue: WorkQueue[str] = WorkQueue(base=1, ceiling=10)
    assert [queue.add_failed("a") for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    queue.forget("a")
    assert queue.add_failed("a") == 1
    queue.close()


async def test_a_waiter_that_is_cancelled_passes_its_wake_up_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_controller_repeats_what_failed_and_goes_on_with_the_others() -> None:
    seen: list[Key] = []
    errors = [Unavailable("not now"), Conflict("old"), RuntimeError("a bug")]
    finished = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        seen.append(key)
        if key == A and errors:
            raise errors.pop(0)
        if seen.count(A) == 5:
            finished.set()
        return Result(requeue_after=0.001) if key == A else DONE

    controller = Controller("test", reconcile, workers=2, queue=WorkQueue(base=0.001))
    controller.queue.add(A)
    controller.queue.add(B)
    task = asyncio.create_task(controller.run())
    await asyncio.wait_for(finished.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen.count(B) == 1
