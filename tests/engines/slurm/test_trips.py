"""Small calls on files that share trips to a thread; and records that grow by a line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.files.shared import SharedFiles
from isthmus.engines.slurm.files.trips import Trips
from isthmus.errors import SiteUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


async def test_calls_that_gather_go_together_and_in_order(threads: ThreadPoolExecutor) -> None:
    trips = Trips(threads)
    go, done = threading.Event(), list[int]()
    made: list[str] = []

    def call(number: int) -> int:
        made.append(threading.current_thread().name)
        done.append(number)
        return number

    first = asyncio.create_task(trips.make(go.wait))
    await asyncio.sleep(0)
    others = [asyncio.create_task(trips.make(lambda number=number: call(number))) for number in range(20)]
    await asyncio.sleep(0)
    assert not done
    go.set()
    assert await asyncio.gather(first, *others) == [True, *range(20)]
    assert done == list(range(20))
    assert len(set(made)) == 1, "one trip for all of them"
    await trips.close()


async def test_an_error_is_that_of_its_own_call(threads: ThreadPoolExecutor) -> None:
    trips = Trips(threads)

    def fails() -> None:
        raise FileNotFoundError("gone")

    found = await asyncio.gather(
        trips.make(lambda: 1), trips.make(fails), trips.make(lambda: 2), return_exceptions=True
    )
    assert [found[0], found[2]] == [1, 2]
    assert isinstance(found[1], FileNotFoundError)
    await trips.close()


async def test_whoever_goes_away_keeps_nobody_waiting(threads: ThreadPoolExecutor) -> None:
    trips = Trips(threads)
    go = threading.Event()
    stuck = asyncio.create_task(trips.make(go.wait))
    await asyncio.sleep(0)
    other = asyncio.create_task(trips.make(lambda: 7))
    await asyncio.sleep(0)
    stuck.cancel()
    go.set()
    assert await other == 7
    with pytest.raises(asyncio.CancelledError):
        await stuck
    await trips.close()


async def test_closing_lets_go_of_those_who_wait(threads: ThreadPoolExecutor) -> None:
    trips = Trips(threads)
    go = threading.Event()
    waiting = [asyncio.create_task(trips.make(go.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    try:
        await trips.close()
        for task in waiting:
            with pytest.raises(asyncio.CancelledError):
                await task
    finally:
        go.set()


def test_of_a_record_the_last_whole_line_counts() -> None:
    first, second = RunRecord("r", "me", 1.0), RunRecord("r", "me", 1.0, job=7)
    whole = records.dump(first) + b"\n" + records.dump(second)
    assert records.load("r", whole) == second
    for cut in range(1, len(records.dump(second))):
        assert records.load("r", whole[:-cut]) == first, "a line that a crash cut off says nothing"
    assert records.load("r", b"") == RunRecord("r")


async def test_a_record_that_is_gone_is_not_made_again_by_a_change(tmp_path: Path) -> None:
    files = SharedFiles(str(tmp_path))
    await files.open()
    try:
        assert await files.create_record("r", records.dump(RunRecord("r", "me")))
        await files.write_record("r", records.dump(RunRecord("r", "me", job=7)))
        assert records.load("r", await files.read_record("r") or b"").job == 7
        await files.drop_record("r")
        with pytest.raises(SiteUnavailable):
            await files.write_record("r", records.dump(RunRecord("r", "me", job=8)))
        assert await files.list_records() == (set(), set())
    finally:
        await files.close()
