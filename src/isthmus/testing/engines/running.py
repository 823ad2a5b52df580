"""The part of the contract that every engine has: it runs work, once, and says how it ended."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, RunState, Stream
from isthmus.errors import NotFound, SiteUnavailable

from .scripting import BatchContract
from .working import (
    PATIENCE,
    FolderSource,
    MemorySink,
    Reopen,
    SuiteEngine,
    WaitingSource,
    new_run_id,
    until,
    wait_ended,
    wait_log_has,
    whole_log,
)


@pytest.mark.anyio
class RunContract(BatchContract):
    """What every engine does."""

    async def test_success(self, engine: SuiteEngine) -> None:
        run = self.shell("echo hello")
        first = await engine.submit(run)
        assert first.state in (RunState.QUEUED, RunState.RUNNING, RunState.ENDED)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, 0, None)
        assert end.started_at is not None
        assert end.ended_at is not None
        assert end.started_at <= end.ended_at
        assert end.usage is not None
        assert end.usage.elapsed_seconds is not None
        assert await whole_log(engine, run.id) == b"hello\n"

    async def test_exit_code(self, engine: SuiteEngine) -> None:
        run = self.shell("exit 42")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, 42, None)

    async def test_signal(self, engine: SuiteEngine) -> None:
        run = self.shell("kill -SEGV $$")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, None, "SIGSEGV")

    async def test_program_not_found(self, engine: SuiteEngine) -> None:
        for program in ("no-such-program-anywhere", "/etc/passwd"):
            run = self.make_run(program, "--help")
            await engine.submit(run)
            end = await wait_ended(engine, run.id)
            assert end.exit_code == 127
            if self.traits.reports_start_failures:
                assert end.reason is EndReason.START_FAILED
                assert program in end.message

    async def test_script_with_args(self, engine: SuiteEngine) -> None:
        run = self.make_run(script='for word in "$@"; do echo "[$word]"; done\n', args=("a b", "", "c'd"))
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"[a b]\n[]\n[c'd]\n"

    async def test_script_names_its_interpreter(self, engine: SuiteEngine) -> None:
        run = self.make_run(script="#!/usr/bin/env -S awk -f\nBEGIN { print 6 * 7 }\n")
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"42\n"

    async def test_environment(self, engine: SuiteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONTROL_PLANE_SECRET", "hidden")
        odd = "two words; $(false) 'quoted' \"double\" \\ ünï\nsecond line"
        run = self.shell('printf "%s|%s|%s" "$ODD" "$ISTHMUS_JOB" "$ISTHMUS_RUN_ID"; env', env={"ODD": odd})
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        log = (await whole_log(engine, run.id)).decode()
        assert log.startswith(f"{odd}|job|{run.id}")
        assert "CONTROL_PLANE_SECRET" not in log

    async def test_files_in_and_out(self, engine: SuiteEngine, tmp_path: Path) -> None:
        contents: dict[str, bytes | str] = {
            "data/in.txt": b"seven\n",
            "bin/tool": b"#!/bin/sh\ncat data/in.txt\n",
            "alias": "-> data/in.txt",
        }
        source = FolderSource(tmp_path / "source", contents, {"bin/tool": 0o755})
        run = self.shell("mkdir -p out/deep && ./bin/tool > out/deep/a.csv && cat alias > out/b.csv; echo x > no.txt")
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        sink = MemorySink()
        assert await engine.collect(run.id, ["out/**/*.csv"], sink) == []
        assert sink.files == {"out/deep/a.csv": b"seven\n", "out/b.csv": b"seven\n"}
        again = MemorySink()
        await engine.collect(run.id, ["out"], again)
        assert again.files == sink.files
        assert source.path_of(source.files[0]).read_bytes() == b"seven\n"

    async def test_standard_input(self, engine: SuiteEngine, tmp_path: Path) -> None:
        contents: dict[str, bytes | str] = {".isthmus/it's in": b"one\ntwo\n"}
        source = FolderSource(tmp_path / "source", contents)
        run = replace(self.shell("read first; echo got $first; exec cat"), stdin=".isthmus/it's in")
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"got one\ntwo\n"
        await engine.forget(run.id)
        missing = replace(self.shell("cat"), stdin="not here")
        await engine.submit(missing, source)
        assert (await wait_ended(engine, missing.id)).exit_code == 127
        assert b"not here, which is to be its standard input" in await whole_log(engine, missing.id)

    async def test_links_out_are_not_followed(self, engine: SuiteEngine) -> None:
        run = self.shell("mkdir out; ln -s /etc/passwd out/stolen; ln -s /etc out/folder; echo y > out/fine")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        sink = MemorySink()
        skipped = await engine.collect(run.id, ["out/**"], sink)
        assert sink.files == {"out/fine": b"y\n"}
        assert sink.links == {}
        assert len(skipped) == 2
        assert any("out/stolen" in sentence for sentence in skipped)

    async def test_cancel_ends_the_whole_tree(self, engine: SuiteEngine) -> None:
        # The grandchild leaves its session, ignores the polite signal, and would write for ever.
        stubborn = "trap '' TERM HUP; while :; do echo beat; sleep 0.05; done"
        run = self.shell(f'(setsid sh -c "{stubborn}" &) ; trap "" TERM; echo ready; while :; do sleep 1; done')
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"beat\n")
        await engine.cancel(run.id, grace=0.2)
        assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED
        size = await engine.log_size(run.id, Stream.STDOUT)
        await engine.wait_log(run.id, Stream.STDOUT, size, 1.0)
        await asyncio.sleep(0.3)  # several beats' time: something that lives would have written
        assert await engine.log_size(run.id, Stream.STDOUT) == size

    async def test_what_a_program_leaves_behind_ends_with_it(self, engine: SuiteEngine) -> None:
        run = self.shell("(setsid sh -c 'while :; do echo beat; sleep 0.05; done' &) ; sleep 0.2; exit 5")
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 5
        size = await engine.log_size(run.id, Stream.STDOUT)
        await asyncio.sleep(0.3)  # several beats' time
        assert await engine.log_size(run.id, Stream.STDOUT) == size

    async def test_cancel_twice_and_after_the_end(self, engine: SuiteEngine) -> None:
        run = self.shell("exec sleep 1000")
        await engine.submit(run)
        await engine.cancel(run.id, grace=1.0)
        await engine.cancel(run.id, grace=1.0)
        end = await wait_ended(engine, run.id)
        assert end.reason is EndReason.CANCELLED
        await engine.cancel(run.id)
        assert await engine.observe(run.id) == end

    async def test_time_limit(self, engine: SuiteEngine) -> None:
        run = self.shell("echo began; exec sleep 1000", time_limit=self.traits.shortest_time_limit)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert end.reason is EndReason.TIME_LIMIT
        assert await whole_log(engine, run.id) == b"began\n"

    async def test_memory_limit(self, engine: SuiteEngine) -> None:
        # `tail` keeps the last lines; of an endless line it keeps everything.
        run = self.make_run("tail", "/dev/zero", memory_bytes=64 * 2**20, time_limit=PATIENCE / 2)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        if self.traits.reports_out_of_memory:
            assert end.reason is EndReason.OUT_OF_MEMORY
        else:
            assert end.reason in (EndReason.COMPLETED, EndReason.OUT_OF_MEMORY)
        assert end.exit_code != 0

    async def test_submitting_again_finds_the_run(self, engine: SuiteEngine) -> None:
        run = self.shell("echo once; exec sleep 1000")
        answers = await asyncio.gather(*(engine.submit(run) for _ in range(5)))
        assert len({answer.engine_id for answer in answers}) == 1
        await wait_log_has(engine, run.id, b"once\n")
        assert (await engine.submit(run)).state is RunState.RUNNING
        await engine.cancel(run.id, grace=1.0)
        end = await wait_ended(engine, run.id)
        assert await engine.submit(run) == end
        assert await whole_log(engine, run.id) == b"once\n"

    async def test_unknown_run(self, engine: SuiteEngine) -> None:
        unknown = new_run_id()
        assert await engine.observe(unknown) is None
        await engine.cancel(unknown)
        await engine.tidy(unknown)
        await engine.forget(unknown)
        with pytest.raises(NotFound):
            await engine.read_log(unknown, Stream.STDOUT, 0, 10)
        with pytest.raises(NotFound):
            await engine.log_size(unknown, Stream.STDOUT)

    async def test_tidy_keeps_log_and_record(self, engine: SuiteEngine) -> None:
        run = self.shell("echo kept; echo gone > file; mkdir -p a/b; chmod 0 a")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        await engine.tidy(run.id)
        await engine.tidy(run.id)
        assert await engine.observe(run.id) == end
        assert await whole_log(engine, run.id) == b"kept\n"
        sink = MemorySink()
        await engine.collect(run.id, ["**"], sink)
        assert sink.files == {}

    async def test_forget(self, engine: SuiteEngine) -> None:
        run = self.shell("echo x")
        await engine.submit(run)
        await wait_ended(engine, run.id)

        async def gone() -> bool:
            await engine.forget(run.id)
            return await engine.observe(run.id) is None

        await until(gone, "the run to be forgotten")
        await engine.forget(run.id)

    @pytest.mark.parametrize("cancelled", [False, True])
    async def test_one_that_was_stopped_begins_nothing_that_is_forgotten(
        self, cancelled: bool, engine: SuiteEngine, another: Reopen, tmp_path: Path
    ) -> None:
        """A control plane is stopped while it submits a run; another takes over, and the run begins, ends and goes."""
        run = self.shell("echo once")
        source = WaitingSource(tmp_path / "source")
        stopped = asyncio.ensure_future(engine.submit(run, source))
        assert await asyncio.to_thread(source.asked.wait, PATIENCE)
        second = await another()
        if cancelled:
            await second.cancel(run.id)
        else:
            taken_over = replace(run, placed_here=False)
            await second.submit(taken_over, FolderSource(tmp_path / "again", {"file": b"content"}))
        await wait_ended(second, run.id)

        async def gone() -> bool:
            await second.forget(run.id)
            return await second.observe(run.id) is None

        await until(gone, "the run to be forgotten")
        source.given.set()
        with pytest.raises(SiteUnavailable):
            await stopped
        assert await second.observe(run.id) is None
        third = await another()
        assert await third.observe(run.id) is None

    async def test_forget_does_not_touch_a_live_run(self, engine: SuiteEngine) -> None:
        run = self.shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready\n")
        await engine.forget(run.id)
        await engine.tidy(run.id)
        seen = await engine.observe(run.id)
        assert seen is not None
        assert seen.state is RunState.RUNNING
        await engine.cancel(run.id, grace=PATIENCE)
        await wait_ended(engine, run.id)
        log = await whole_log(engine, run.id)
        assert log.startswith(b"ready\n")
        assert log.endswith(b"bye\n")

    async def test_changes(self, engine: SuiteEngine) -> None:
        before = self.shell("exit 0")
        await engine.submit(before)
        await wait_ended(engine, before.id)
        changes = engine.changes()
        async with asyncio.timeout(PATIENCE):
            assert before.id in await anext(changes)
            run = self.shell("exit 3")
            await engine.submit(run)
            async for ids in changes:
                seen = await engine.observe(run.id)
                if run.id in ids and seen is not None and seen.state is RunState.ENDED:
                    break
        await changes.aclose()  # type: ignore[attr-defined]

    async def test_reopening_finds_runs(self, engine: SuiteEngine, reopen: Reopen) -> None:
        over = self.shell("echo over; exit 9")
        lasting = self.shell("trap 'echo end; exit 4' TERM; echo begin; while :; do sleep 0.05; done")
        await engine.submit(over)
        await engine.submit(lasting)
        await wait_ended(engine, over.id)
        await wait_log_has(engine, lasting.id, b"begin\n")
        second = await reopen()
        seen = await second.observe(lasting.id)
        assert seen is not None
        assert seen.state is RunState.RUNNING
        assert (await second.submit(lasting)).engine_id == seen.engine_id
        end = await second.observe(over.id)
        assert end is not None
        assert end.exit_code == 9
        changes = second.changes()
        async with asyncio.timeout(PATIENCE):
            assert {over.id, lasting.id} <= await anext(changes)
            await second.cancel(lasting.id, grace=PATIENCE)
            async for ids in changes:
                now = await second.observe(lasting.id)
                if lasting.id in ids and now is not None and now.state is RunState.ENDED:
                    break
        await changes.aclose()  # type: ignore[attr-defined]
        assert (await wait_ended(second, lasting.id)).exit_code == 4
        log = await whole_log(second, lasting.id)
        assert log.startswith(b"begin\n")
        assert log.endswith(b"end\n")

    async def test_runs_do_not_see_our_descriptors(self, engine: SuiteEngine) -> None:
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        try:
            run = self.shell("ls /proc/self/fd | sort -n | tr '\\n' ' '")
            await engine.submit(run)
            await wait_ended(engine, run.id)
            # 0, 1, 2, and the one with which `ls` reads the folder.
            assert (await whole_log(engine, run.id)).split() == [b"0", b"1", b"2", b"3"]
        finally:
            os.close(reader)
            os.close(writer)
