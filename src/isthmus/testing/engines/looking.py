"""The part of engines that let people look into the folder of a run while it works there."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.engines.base import FileKind, FolderReader
from isthmus.errors import NotFound

from .reading import OpenReader
from .working import EngineSuite, FolderSource, SuiteEngine, new_run_id, wait_ended, wait_log_has

_FILLS = (
    "mkdir -p out/deep; printf 0123456789 >out/deep/a.csv; ln -s /etc/passwd out/stolen; ln -s /etc folder; "
    "mkfifo pipe; i=0; while [ $i -lt 30 ]; do : >many$i; i=$((i+1)); done; echo ready; exec sleep 1000"
)


@pytest.mark.anyio
class BrowseContract(EngineSuite):
    """What every engine does whose runs can be looked into."""

    async def test_files_of_a_running_job_are_seen_and_nothing_else(
        self, engine: SuiteEngine, reader: OpenReader, tmp_path: Path
    ) -> None:
        run = self.shell(_FILLS)
        await engine.submit(run, FolderSource(tmp_path / "source", {"in put": b"seven"}))
        await wait_log_has(engine, run.id, b"ready\n")
        other = await reader()
        try:
            for looking in (engine, other):
                assert isinstance(looking, FolderReader)
                await self._look(looking, run.id)
        finally:
            await other.close()
        await engine.cancel(run.id, grace=0)
        await wait_ended(engine, run.id)
        await engine.tidy(run.id)
        assert isinstance(engine, FolderReader)
        with pytest.raises(NotFound):
            await engine.list_files(run.id, 10)

    async def _look(self, looking: FolderReader, run_id: str) -> None:
        found = await looking.list_files(run_id, 1000)
        assert found.complete
        seen = {file.path: (file.kind, file.size) for file in found.files if not file.path.startswith("many")}
        assert seen == {
            "folder": (FileKind.LINK, 0),
            "in put": (FileKind.FILE, 5),
            "out/deep/a.csv": (FileKind.FILE, 10),
            "out/stolen": (FileKind.LINK, 0),
            "pipe": (FileKind.OTHER, 0),
        }
        few = await looking.list_files(run_id, 10)
        assert (len(few.files), few.complete) == (10, False)
        part = await looking.read_file(run_id, "out/deep/a.csv", 3, 4)
        assert (part.data, part.size) == (b"3456", 10)
        assert (await looking.read_file(run_id, "in put", 0, 100)).data == b"seven"
        assert (await looking.read_file(run_id, "in put", 100, 100)).data == b""
        for path in ("out/stolen", "folder/passwd", "pipe", "out", "nothing", "in put/x"):
            with pytest.raises(NotFound):
                await looking.read_file(run_id, path, 0, 100)
        for path in ("../stdout", "/etc/passwd", "a/../../b", ""):
            with pytest.raises(ValueError, match="not a path"):
                await looking.read_file(run_id, path, 0, 100)
        with pytest.raises(NotFound):
            await looking.list_files(new_run_id(), 10)
