"""The part of engines that hold what waits in their queue."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

from typing import Protocol

import pytest

from isthmus.engines.base import After, EndReason, HoldingEngine, RunState
from isthmus.resources.jobs import DependencyCondition

from .working import EngineSuite, SuiteEngine, new_run_id, until, wait_ended


class HoldingSuiteEngine(SuiteEngine, HoldingEngine, Protocol):
    """An engine that has this part."""


@pytest.mark.anyio
class HoldContract(EngineSuite):
    """What every engine does that can hold."""

    async def test_what_is_held_waits_and_what_is_released_runs(self, engine: HoldingSuiteEngine) -> None:
        first = self.shell("exec sleep 1000")
        await engine.submit(first)
        held = self.shell("echo ran", after=(After(first.id, DependencyCondition.FINISHED),))
        await engine.submit(held)
        await engine.hold(held.id)

        async def seen_held(wanted: bool) -> bool:
            seen = await engine.observe(held.id)
            return seen is not None and seen.held is wanted

        await until(lambda: seen_held(True), "the run to be held")
        await engine.cancel(first.id, grace=0)
        await wait_ended(engine, first.id)
        seen = await engine.observe(held.id)
        assert seen is not None
        assert (seen.state, seen.held) == (RunState.QUEUED, True)
        await engine.release(held.id)
        assert (await wait_ended(engine, held.id)).exit_code == 0

    async def test_what_runs_is_over_or_unknown_is_not_touched(self, engine: HoldingSuiteEngine) -> None:
        run = self.shell("exit 3")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        for run_id in (run.id, new_run_id()):
            await engine.hold(run_id)
            await engine.release(run_id)
        assert await engine.observe(run.id) == end
        assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)
