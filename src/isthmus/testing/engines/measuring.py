"""The part of engines that keep something of their runs on the disk of the control plane's machine."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import pytest

from isthmus.engines.base import MeasuringEngine

from .working import EngineSuite, SuiteEngine, until, wait_ended


@pytest.mark.anyio
class MeasureContract(EngineSuite):
    """What every engine does that keeps something here."""

    async def test_what_a_run_printed_is_measured_and_forgotten_with_it(self, engine: SuiteEngine) -> None:
        assert isinstance(engine, MeasuringEngine)
        run = self.shell("head -c 300000 /dev/zero")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        disk = (await engine.measure())[run.id]
        assert disk.logs >= 300_000
        await engine.tidy(run.id)
        assert (await engine.measure())[run.id].folders == 0

        async def gone() -> bool:
            await engine.forget(run.id)  # without effect while what watched over it has not quite left
            return run.id not in await engine.measure()

        await until(gone, "nothing to be left of it")
