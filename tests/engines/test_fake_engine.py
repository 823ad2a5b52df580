"""The fake engine keeps the contract, and makes the faults it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from isthmus.engines.base import EndReason, Engine, Run, RunState, Stream
from isthmus.errors import EngineRefused, NotFound, SiteUnavailable
from isthmus.testing.engines import MemorySink, Reopen, TaskContract, new_run_id, wait_ended
from isthmus.testing.fake_engine import FakeEngine, FakeMachine, Outcome

pytestmark = pytest.mark.anyio


def a_run() -> Run:
    return Run(id=new_run_id(), namespace="n", job="j", command=("true",))


def is_engine(engine: Engine) -> bool:
    return engine is not None


async def test_ends_by_itself_and_is_told() -> None:
    engine = FakeEngine()
    assert is_engine(engine)
    changes = engine.changes()
    assert await anext(changes) == set()
    run = a_run()
    assert (await engine.submit(run)).state is RunState.RUNNING
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0)
    assert run.id in await anext(changes)
    await changes.aclose()  # type: ignore[attr-defined]


async def test_submitted_twice_is_started_once_also_by_two_engines() -> None:
    machine = FakeMachine()
    machine.outcome = lambda _: Outcome(after=None)
    first, second = FakeEngine(machine), FakeEngine(machine)
    run = a_run()
    await asyncio.gather(first.submit(run), second.submit(run), first.submit(run))
    assert machine.starts == {run.id: 1}
    seen = await second.observe(run.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING


async def test_lost_reply_is_still_a_run() -> None:
    engine = FakeEngine()
    engine.machine.faults.lose_replies = 1
    run = a_run()
    with pytest.raises(SiteUnavailable):
        await engine.submit(run)
    assert await engine.observe(run.id) is not None
    await engine.submit(run)
    assert engine.machine.starts[run.id] == 1


async def test_unavailable_and_refused() -> None:
    engine = FakeEngine()
    engine.machine.faults.unavailable = "down"
    with pytest.raises(SiteUnavailable, match="down"):
        await engine.observe(new_run_id())
    engine.machine.faults.unavailable = ""
    engine.machine.faults.refuse = "too wide"
    with pytest.raises(EngineRefused, match="too wide"):
        await engine.submit(a_run())
    assert not engine.machine.runs


async def test_queue_starts_when_told() -> None:
    engine = FakeEngine(queues=True)
    run = a_run()
    assert (await engine.submit(run)).state is RunState.QUEUED
    engine.machine.start(run.id)
    assert (await wait_ended(engine, run.id)).exit_code == 0


async def test_logs_files_and_forgetting() -> None:
    machine = FakeMachine()
    machine.outcome = lambda _: Outcome(after=None, log=b"one\n", files={"out/a.csv": b"1", "b.txt": b"2"})
    engine = FakeEngine(machine)
    run = a_run()
    await engine.submit(run)
    waiting = asyncio.create_task(engine.wait_log(run.id, Stream.STDOUT, 4, 60))
    await asyncio.sleep(0)
    machine.write_log(run.id, b"two\n")
    async with asyncio.timeout(30):
        await waiting
    assert await engine.read_log(run.id, Stream.STDOUT, 4, 100) == b"two\n"
    await engine.forget(run.id)
    assert await engine.observe(run.id) is not None
    machine.end(run.id)
    sink = MemorySink()
    await engine.collect(run.id, ["out"], sink)
    assert sink.files == {"out/a.csv": b"1"}
    await engine.forget(run.id)
    assert await engine.observe(run.id) is None
    with pytest.raises(NotFound):
        await engine.read_log(run.id, Stream.STDOUT, 0, 1)


async def test_cancel_is_counted_and_ends() -> None:
    machine = FakeMachine()
    machine.outcome = lambda _: Outcome(after=None)
    engine = FakeEngine(machine)
    run = a_run()
    await engine.submit(run)
    await engine.cancel(run.id)
    assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED
    assert machine.cancels[run.id] == 1


async def test_ten_thousand_runs() -> None:
    engine = FakeEngine()
    runs = [a_run() for _ in range(10_000)]
    for run in runs:
        await engine.submit(run)
    await wait_ended(engine, runs[-1].id)
    assert all(run.seen.state is RunState.ENDED for run in engine.machine.runs.values())


class TestTasks(TaskContract):
    """Its tasks are watched over as those of real engines are; the suites of other parts need real programs."""

    test_every_part_that_the_engine_has_is_tested = None  # type: ignore[assignment]

    @pytest.fixture
    async def engine(self) -> AsyncIterator[FakeEngine]:
        engine = FakeEngine()
        engine.machine.outcome = lambda run: Outcome(exit_code=int(run.command[-1].removeprefix("exit ")))
        await engine.open()
        yield engine
        await engine.close()

    @pytest.fixture
    async def reopen(self, engine: FakeEngine) -> AsyncIterator[Reopen]:
        second = FakeEngine(engine.machine)

        async def again() -> FakeEngine:
            await second.open()
            return second

        yield again
        await second.close()


async def test_a_reader_is_another_view_of_the_machine() -> None:
    engine = FakeEngine()
    engine.machine.outcome = lambda _: Outcome(log=b"printed\n")
    run = a_run()
    await engine.submit(run)
    reader = await FakeEngine(engine.machine).open_to_read()
    assert await reader.read_log(run.id, Stream.STDOUT, 0, 100) == b"printed\n"
    assert engine.machine.opened == set(), "nothing was opened for work"
    await reader.close()
