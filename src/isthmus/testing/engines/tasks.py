"""What holds for the background tasks of every engine: each is known, and none dies unnoticed."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus._kit.tasks import is_supervised
from isthmus.engines.base import EndReason, HoldingEngine

from .working import EngineSuite, Reopen, SuiteEngine, until, wait_ended


def _is_ours(task: asyncio.Task[Any]) -> bool:
    """Whether it runs code of this package; libraries have tasks of their own, which end with their connections."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(isthmus.__file__).parent)


class Injected(Exception):
    """A failure that nobody foresaw."""


@pytest.mark.anyio
class TaskContract(EngineSuite):
    """What every engine does about its background tasks."""

    async def test_every_part_that_the_engine_has_is_tested(self, engine: SuiteEngine) -> None:
        from . import PARTS

        has = {suite for part, suite in PARTS.items() if isinstance(engine, part)}
        assert has == {suite for suite in PARTS.values() if isinstance(self, suite)}
        assert engine.capabilities.hold is isinstance(engine, HoldingEngine)

    async def test_every_background_task_is_supervised(self, engine: SuiteEngine, reopen: Reopen) -> None:
        await engine.close()
        before = asyncio.all_tasks()
        second = await reopen()
        begun = [task for task in asyncio.all_tasks() - before if _is_ours(task)]
        assert second.tasks.vital()
        assert [task.get_name() for task in begun if not is_supervised(task)] == [], "nobody watches over them"

    async def test_a_task_that_fails_is_told_of_and_started_again(self, engine: SuiteEngine) -> None:
        """Whatever each of them is, and whatever it fails with."""
        vital = {task.name for task in engine.tasks.vital()}
        for task in engine.tasks.all():
            failures = task.failures

            async def failed(task: object = task, failures: int = failures) -> bool:
                task.interrupt(Injected("injected"))  # type: ignore[attr-defined]
                return task.failures > failures  # type: ignore[attr-defined, no-any-return]

            await until(failed, f"the failure of {task.name}")
            assert (task.name in engine.tasks.failures()) is (task.name in vital)
            assert "Injected: injected" in task.failure

            async def well(task: object = task) -> bool:
                return not task.failure  # type: ignore[attr-defined]

            await until(well, f"{task.name} to be well again")
            assert task.running
        assert engine.tasks.failures() == {}
        run = self.shell("exit 7")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 7)
