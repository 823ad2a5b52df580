"""The part of engines whose logs can be read: while they work, and by those who may only read.

Beside the fixtures of `RunContract`, `reader` opens a reader on the same place through an engine object of its own, and
`traces` shows everything that the site keeps of its runs, so that one can see whether anything changed.
"""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from isthmus.engines.base import EndReason, LogReader, Stream
from isthmus.errors import NotFound

from .working import PATIENCE, EngineSuite, SuiteEngine, new_run_id, until, wait_ended, wait_log_has, whole_log

OpenReader = Callable[[], Awaitable[LogReader]]
Traces = Callable[[], Awaitable[object]]
QUIET_SECONDS = 1.0


@pytest.mark.anyio
class ReadContract(EngineSuite):
    """What every engine does whose logs can be read."""

    async def test_merged_streams_keep_their_order(self, engine: SuiteEngine) -> None:
        run = self.shell("for n in 1 2 3; do echo out $n; echo err $n >&2; done")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        expected = b"".join(b"out %d\nerr %d\n" % (n, n) for n in (1, 2, 3))
        assert await whole_log(engine, run.id) == expected
        assert await whole_log(engine, run.id, Stream.STDERR) == b""

    async def test_separate_streams(self, engine: SuiteEngine) -> None:
        run = self.shell("echo out; echo err >&2", separate_streams=True)
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"out\n"
        assert await whole_log(engine, run.id, Stream.STDERR) == b"err\n"

    async def test_log_offsets_and_bytes_that_are_not_text(self, engine: SuiteEngine) -> None:
        run = self.shell("printf '0123456789\\377\\000\\376'")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await engine.log_size(run.id, Stream.STDOUT) == 13
        assert await engine.read_log(run.id, Stream.STDOUT, 3, 4) == b"3456"
        assert await engine.read_log(run.id, Stream.STDOUT, 10, 100) == b"\xff\x00\xfe"
        assert await engine.read_log(run.id, Stream.STDOUT, 13, 100) == b""
        assert await engine.read_log(run.id, Stream.STDOUT, 9999, 100) == b""

    async def test_log_is_followed_while_it_grows(self, engine: SuiteEngine) -> None:
        run = self.shell("trap 'echo got it; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready\n")
        await engine.cancel(run.id, grace=PATIENCE)
        await wait_log_has(engine, run.id, b"got it\n")
        assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED

    async def test_what_a_run_uses_is_written_down_while_it_runs(self, engine: SuiteEngine) -> None:
        with pytest.raises(NotFound):
            await engine.read_samples(new_run_id(), 0, 100)
        run = self.shell("exec sleep 1000")
        await engine.submit(run)
        if not engine.capabilities.samples:
            assert await engine.read_samples(run.id, 0, 65536) == b""
            await engine.cancel(run.id, grace=0)
            await wait_ended(engine, run.id)
            return
        async with asyncio.timeout(60):
            while (data := await engine.read_samples(run.id, 0, 65536)).count(b"\n") < 2:  # noqa: ASYNC110 - a file is looked at
                await asyncio.sleep(0.05)
        first = data[: data.index(b"\n") + 1]
        assert len(first.split()) == 6
        assert (await engine.read_samples(run.id, len(first), 65536)).startswith(data[len(first) :])
        await engine.cancel(run.id, grace=0)
        await wait_ended(engine, run.id)
        assert (await engine.read_samples(run.id, 0, 65536)).startswith(data), "it stays after the end"

    async def test_many_follow_one_log(self, engine: SuiteEngine) -> None:
        run = self.shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready\n")
        size = await engine.log_size(run.id, Stream.STDOUT)
        waiting = [asyncio.create_task(engine.wait_log(run.id, Stream.STDOUT, size, PATIENCE)) for _ in range(200)]
        await asyncio.sleep(0)
        await engine.cancel(run.id, grace=PATIENCE)
        async with asyncio.timeout(PATIENCE / 2):
            await asyncio.gather(*waiting)
        await wait_ended(engine, run.id)

    async def test_a_reader_follows_what_another_control_plane_runs(
        self, engine: SuiteEngine, reader: OpenReader
    ) -> None:
        run = self.shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready\n")
        reading = await reader()
        try:
            await wait_log_has(reading, run.id, b"ready\n")
            assert await reading.log_size(run.id, Stream.STDOUT) == 6
            assert await reading.read_log(run.id, Stream.STDOUT, 2, 3) == b"ady"
            await engine.cancel(run.id, grace=PATIENCE)
            await wait_ended(engine, run.id)
            await wait_log_has(reading, run.id, b"bye\n")
            assert await whole_log(reading, run.id) == await whole_log(engine, run.id)
            with pytest.raises(NotFound):
                await reading.read_log(new_run_id(), Stream.STDOUT, 0, 10)
            with pytest.raises(NotFound):
                await reading.log_size("../../etc/passwd", Stream.STDOUT)
        finally:
            await reading.close()

    async def test_a_reader_changes_nothing(self, engine: SuiteEngine, reader: OpenReader, traces: Traces) -> None:
        """Also where a run is over and nobody has settled it: that is the work of the control plane that leads."""
        run = self.shell("echo over")
        await engine.submit(run)
        await engine.close()
        last = [await traces()]

        async def quiet() -> bool:
            await asyncio.sleep(QUIET_SECONDS)
            last.append(await traces())
            return last[-1] == last[-2] and bool(last[-1])

        reading = await reader()
        try:
            await wait_log_has(reading, run.id, b"over\n")
            await until(quiet, "the site to come to rest")
            assert await whole_log(reading, run.id) == b"over\n"
            await reading.read_samples(run.id, 0, 100)
            await reading.wait_log(run.id, Stream.STDOUT, 5, QUIET_SECONDS)
        finally:
            await reading.close()
        assert await traces() == last[-1]
