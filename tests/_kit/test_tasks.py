"""Supervised tasks: whatever happens inside, they are started again, and it is said why they were down."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from isthmus._kit import tasks
from isthmus._kit.tasks import Supervised, SupervisedTasks, reason

pytestmark = pytest.mark.anyio
SHORT = 0.001


async def until(condition: object) -> None:
    async with asyncio.timeout(30):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.001)


class Flaky:
    """Fails in the ways that it is given, one start after the other, and then works."""

    def __init__(self, *failures: BaseException | None) -> None:
        self.failures, self.starts = list(failures), 0

    async def __call__(self) -> None:
        self.starts += 1
        if not self.failures:
            await asyncio.Event().wait()
        if (failure := self.failures.pop(0)) is not None:
            raise failure


@pytest.fixture(autouse=True)
def _soon_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "STEADY", 0.05)


@pytest.mark.parametrize(
    "failure",
    [ValueError("no"), ExceptionGroup("many", [OSError("one")]), asyncio.CancelledError(), TimeoutError(), None],
    ids=["error", "group", "cancelled from within", "timeout", "returned"],
)
async def test_a_task_that_fails_in_any_way_is_started_again(failure: BaseException | None) -> None:
    counted: list[str] = []
    work = Flaky(failure, failure)
    task = Supervised("watcher", work, failed=counted.append, longest_pause=SHORT)
    task.start()
    await until(lambda: work.starts == 3)
    assert counted == ["watcher", "watcher"]
    assert task.failure
    await until(lambda: not task.failure)
    assert task.running
    await task.stop()
    assert not task.running


async def test_work_that_may_end_ends() -> None:
    task = Supervised("once", Flaky(ValueError("no"), None), ends=True, longest_pause=SHORT)
    task.start()
    await until(lambda: not task.running)
    assert (task.failure, task.failures) == ("", 1)


async def test_stopping_ends_it_at_work_and_during_a_pause() -> None:
    at_work, waiting = Supervised("a", Flaky()), Supervised("b", Flaky(*[ValueError("no")] * 99))
    for task in (at_work, waiting):
        task.start()
    await until(lambda: waiting.failure)
    for task in (at_work, waiting):
        await task.stop()
    assert [at_work.running, waiting.running] == [False, False]


async def test_failures_of_vital_tasks_are_the_owners_and_others_are_not() -> None:
    counted, reported = Counter[str](), []
    owned = SupervisedTasks(failed=lambda name: counted.update([name]), longest_pause=SHORT)
    owned.on_change(lambda: reported.append(dict(owned.failures())))
    owned.start("watcher", Flaky())
    owned.spawn("settle", Flaky(ValueError("of one run"), None), of="run-1")
    await until(lambda: counted["settle"])
    assert owned.failures() == {}
    await until(lambda: len(owned.all()) == 1)
    (vital,) = owned.vital()
    vital.interrupt(ValueError("broken"))
    await until(lambda: reported)
    assert reported[0] == {"watcher": "ValueError: broken"}
    await until(lambda: not owned.failures())
    assert reported[-1] == {}
    await owned.close()
    assert owned.all() == []


async def test_one_task_of_each_piece_of_work_at_a_time() -> None:
    owned = SupervisedTasks()
    first = owned.spawn("settle", Flaky(), of="run-1")
    assert owned.spawn("settle", Flaky(), of="run-1") is first
    assert owned.spawn("settle", Flaky(), of="run-2") is not first
    await owned.stop("settle", of="run-1")
    assert len(owned.all()) == 1
    await owned.close()


async def test_a_reason_is_one_bounded_line() -> None:
    reported = reason(ValueError("a\nb" + "x" * 10_000))
    assert "\n" not in reported
    assert len(reported) == tasks.LONGEST_REASON
