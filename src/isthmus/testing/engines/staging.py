"""The part of engines that move files over a network, and say how far they are."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import pytest

from isthmus.engines.base import StagingEngine

from .working import EngineSuite, FolderSource, SuiteEngine, new_run_id, wait_ended

CONTENT = b"x" * 2**20


class StagingSuiteEngine(SuiteEngine, StagingEngine, Protocol):
    """An engine that has this part."""


@pytest.mark.anyio
class StageContract(EngineSuite):
    """What every engine does that moves files."""

    async def test_it_is_told_how_far_files_are(self, engine: StagingSuiteEngine, tmp_path: Path) -> None:
        files = {f"data/{number}": CONTENT + bytes([number]) for number in range(8)}
        source = FolderSource(tmp_path / "source", files)
        run = self.shell("cat data/* | wc -c")
        assert engine.moved(new_run_id()) is None
        sending = asyncio.ensure_future(engine.submit(run, source))
        seen = []
        while not sending.done():
            if moved := engine.moved(run.id):
                seen.append(moved)
            await asyncio.sleep(0)
        await sending
        assert engine.moved(run.id) is None, "nothing is on its way any more"
        assert all(0 <= done <= total for done, total in seen)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        totals = {total for _, total in seen}
        assert len(totals) <= 1, "how much there is does not change on the way"
        assert all(total >= sum(map(len, files.values())) for total in totals)
        await wait_ended(engine, run.id)
