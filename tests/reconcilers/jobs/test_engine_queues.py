"""What may be left to an engine's own queue, and how files on their way are told of."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.errors import Conflict
from isthmus.reconcilers.jobs import engine_queues
from isthmus.reconcilers.jobs.engine_queues import reporting_waits

pytestmark = pytest.mark.anyio


class Mover:
    """An engine that moves files, as far as this matters."""

    def __init__(self) -> None:
        self.far: tuple[int, int] | None = (512, 2048)

    def moved(self, run_id: str) -> tuple[int, int] | None:
        return self.far


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_queues, "TELL_EVERY", 0.01)


async def test_it_is_told_how_far_files_are_and_a_conflict_does_no_harm() -> None:
    reported: list[str] = []
    enough = asyncio.Event()

    async def notify(message: str) -> None:
        reported.append(message)
        if len(reported) == 1:
            raise Conflict("somebody else changed it")
        enough.set()

    async def work() -> int:
        await enough.wait()
        return 7

    assert await reporting_waits(Mover(), "r", work(), notify) == 7  # type: ignore[arg-type]
    assert reported[-1] == "512 of 2Ki (25%)"


async def test_work_that_fails_fails_and_work_that_is_left_ends() -> None:
    async def notify(message: str) -> None:
        raise AssertionError(message)

    async def fails() -> int:
        raise ValueError("no")

    mover = Mover()
    mover.far = None
    with pytest.raises(ValueError, match="no"):
        await reporting_waits(mover, "r", fails(), notify)  # type: ignore[arg-type]
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(reporting_waits(mover, "r", endless(), notify))  # type: ignore[arg-type]
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
