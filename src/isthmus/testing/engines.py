"""The engine contract as a suite: every driver passes it.

A driver's tests make a subclass of `EngineContract` and give the fixtures `engine` (open) and `reopen` (closes the
present engine object and opens another on the same place, as a restarted control plane would). `traits` says what
may differ between engines. Jobs use nothing but a POSIX shell and the usual small programs.
"""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import Account, EndReason, Engine, Observation, Run, RunState, Stream
from isthmus.errors import NotFound
from isthmus.resources.trees import TreeFile, digest_of

PATIENCE = 90.0
Reopen = Callable[[], Awaitable[Engine]]


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What may differ between engines."""

    account: Account = field(default_factory=Account)
    """Under whom the suite's runs run."""
    shortest_time_limit: float = 1.0
    """Seconds; the least that the engine can enforce."""
    tells_start_failures: bool = True
    """Whether a program that does not exist is told from one that fails."""
    tells_out_of_memory: bool = True
    """Whether an end for want of memory is told from a failure."""


class FolderSource:
    """A folder to send along, made of texts and of links (written as `-> target`)."""

    def __init__(
        self, folder: Path, contents: Mapping[str, bytes | str], modes: Mapping[str, int] | None = None
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        files: list[TreeFile] = []
        for path, content in contents.items():
            if isinstance(content, str):
                files.append(TreeFile(path=path, link=content.removeprefix("-> ")))
                continue
            digest = digest_of(content)
            (folder / digest.removeprefix("sha256:")).write_bytes(content)
            mode = (modes or {}).get(path, 0o644)
            files.append(TreeFile(path=path, digest=digest, size=len(content), mode=mode))
        self.files: Sequence[TreeFile] = files

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies."""
        assert file.digest is not None
        return self._folder / file.digest.removeprefix("sha256:")


class MemorySink:
    """Keeps what is brought back."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.links: dict[str, str] = {}

    async def add(self, path: str, source: Path | int, mode: int) -> None:
        """Keep a file."""
        self.files[path] = await asyncio.to_thread(_content, source)
        self.modes[path] = mode

    async def add_link(self, path: str, target: str) -> None:
        """Keep a link."""
        self.links[path] = target


def _content(source: Path | int) -> bytes:
    with open(source, "rb", closefd=not isinstance(source, int)) as file:
        return file.read()


def new_run_id(attempt: int = 0) -> str:
    """An id that was never used."""
    return f"{uuid.uuid4()}.{attempt}"


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
    """Look again and again until the answer is true; fails after so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (answer := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        await asyncio.sleep(0.01)
    return answer


async def wait_ended(engine: Engine, run_id: str) -> Observation:
    """The observation of a run once it has ended."""

    async def look() -> Observation | None:
        seen = await engine.observe(run_id)
        return seen if seen is not None and seen.state is RunState.ENDED else None

    ended: Observation = await until(look, f"the end of run {run_id}")
    return ended


async def whole_log(engine: Engine, run_id: str, stream: Stream = Stream.STDOUT) -> bytes:
    """All of a log."""
    parts: list[bytes] = []
    offset = 0
    while part := await engine.read_log(run_id, stream, offset, 65536):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


async def wait_log_has(engine: Engine, run_id: str, text: bytes) -> None:
    """Follow a log until it holds this text."""

    async def look() -> bool:
        log = await whole_log(engine, run_id)
        if text in log:
            return True
        await engine.wait_log(run_id, Stream.STDOUT, len(log), 5.0)
        return False

    await until(look, f"{text!r} in the log of run {run_id}")


@pytest.mark.anyio
class EngineContract:
    """What every engine does."""

    traits = EngineTraits()

    def make_run(self, *command: str, **fields: Any) -> Run:
        """A run of this command, or with the given fields."""
        defaults: dict[str, Any] = {
            "id": new_run_id(),
            "namespace": "contract",
            "job": "job",
            "command": command,
            "account": self.traits.account,
        }
        return Run(**(defaults | fields))

    def shell(self, script: str, **fields: Any) -> Run:
        """A run of some shell lines."""
        return self.make_run("/bin/sh", "-c", script, **fields)

    async def test_success(self, engine: Engine) -> None:
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

    async def test_exit_code(self, engine: Engine) -> None:
        run = self.shell("exit 42")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, 42, None)

    async def test_signal(self, engine: Engine) -> None:
        run = self.shell("kill -SEGV $$")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, None, "SIGSEGV")

    async def test_program_not_found(self, engine: Engine) -> None:
        run = self.make_run("no-such-program-anywhere", "--help")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert end.exit_code == 127
        if self.traits.tells_start_failures:
            assert end.reason is EndReason.START_FAILED
            assert "no-such-program-anywhere" in end.message

    async def test_script_with_args(self, engine: Engine) -> None:
        run = self.make_run(script='for word in "$@"; do echo "[$word]"; done\n', args=("a b", "", "c'd"))
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"[a b]\n[]\n[c'd]\n"

    async def test_script_names_its_interpreter(self, engine: Engine) -> None:
        run = self.make_run(script="#!/usr/bin/env -S awk -f\nBEGIN { print 6 * 7 }\n")
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"42\n"

    async def test_environment(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONTROL_PLANE_SECRET", "hidden")
        odd = "two words; $(false) 'quoted' \"double\" \\ ünï\nsecond line"
        run = self.shell('printf "%s|%s|%s" "$ODD" "$ISTHMUS_JOB" "$ISTHMUS_RUN_ID"; env', env={"ODD": odd})
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        log = (await whole_log(engine, run.id)).decode()
        assert log.startswith(f"{odd}|job|{run.id}")
        assert "CONTROL_PLANE_SECRET" not in log

    async def test_files_in_and_out(self, engine: Engine, tmp_path: Path) -> None:
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

    async def test_links_out_are_not_followed(self, engine: Engine) -> None:
        run = self.shell("mkdir out; ln -s /etc/passwd out/stolen; ln -s /etc out/folder; echo y > out/fine")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        sink = MemorySink()
        skipped = await engine.collect(run.id, ["out/**"], sink)
        assert sink.files == {"out/fine": b"y\n"}
        assert sink.links == {}
        assert len(skipped) == 2
        assert any("out/stolen" in sentence for sentence in skipped)

    async def test_merged_streams_keep_their_order(self, engine: Engine) -> None:
        run = self.shell("for n in 1 2 3; do echo out $n; echo err $n >&2; done")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        expected = b"".join(b"out %d\nerr %d\n" % (n, n) for n in (1, 2, 3))
        assert await whole_log(engine, run.id) == expected
        assert await whole_log(engine, run.id, Stream.STDERR) == b""

    async def test_separate_streams(self, engine: Engine) -> None:
        run = self.shell("echo out; echo err >&2", separate_streams=True)
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"out\n"
        assert await whole_log(engine, run.id, Stream.STDERR) == b"err\n"

    async def test_log_offsets_and_bytes_that_are_not_text(self, engine: Engine) -> None:
        run = self.shell("printf '0123456789\\377\\000\\376'")
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await engine.log_size(run.id, Stream.STDOUT) == 13
        assert await engine.read_log(run.id, Stream.STDOUT, 3, 4) == b"3456"
        assert await engine.read_log(run.id, Stream.STDOUT, 10, 100) == b"\xff\x00\xfe"
        assert await engine.read_log(run.id, Stream.STDOUT, 13, 100) == b""
        assert await engine.read_log(run.id, Stream.STDOUT, 9999, 100) == b""

    async def test_log_is_followed_while_it_grows(self, engine: Engine) -> None:
        run = self.shell("trap 'echo got it; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"ready\n")
        await engine.cancel(run.id, grace=PATIENCE)
        await wait_log_has(engine, run.id, b"got it\n")
        assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED

    async def test_what_a_run_uses_is_written_down_while_it_runs(self, engine: Engine) -> None:
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

    async def test_many_follow_one_log(self, engine: Engine) -> None:
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

    async def test_cancel_ends_the_whole_tree(self, engine: Engine) -> None:
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

    async def test_what_a_program_leaves_behind_ends_with_it(self, engine: Engine) -> None:
        run = self.shell("(setsid sh -c 'while :; do echo beat; sleep 0.05; done' &) ; sleep 0.2; exit 5")
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 5
        size = await engine.log_size(run.id, Stream.STDOUT)
        await asyncio.sleep(0.3)  # several beats' time
        assert await engine.log_size(run.id, Stream.STDOUT) == size

    async def test_cancel_twice_and_after_the_end(self, engine: Engine) -> None:
        run = self.shell("exec sleep 1000")
        await engine.submit(run)
        await engine.cancel(run.id, grace=1.0)
        await engine.cancel(run.id, grace=1.0)
        end = await wait_ended(engine, run.id)
        assert end.reason is EndReason.CANCELLED
        await engine.cancel(run.id)
        assert await engine.observe(run.id) == end

    async def test_time_limit(self, engine: Engine) -> None:
        run = self.shell("echo began; exec sleep 1000", time_limit=self.traits.shortest_time_limit)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert end.reason is EndReason.TIME_LIMIT
        assert await whole_log(engine, run.id) == b"began\n"

    async def test_memory_limit(self, engine: Engine) -> None:
        # `tail` keeps the last lines; of an endless line it keeps everything.
        run = self.make_run("tail", "/dev/zero", memory_bytes=64 * 2**20, time_limit=PATIENCE / 2)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        if self.traits.tells_out_of_memory:
            assert end.reason is EndReason.OUT_OF_MEMORY
        else:
            assert end.reason in (EndReason.COMPLETED, EndReason.OUT_OF_MEMORY)
        assert end.exit_code != 0

    async def test_submitting_again_finds_the_run(self, engine: Engine) -> None:
        run = self.shell("echo once; exec sleep 1000")
        answers = await asyncio.gather(*(engine.submit(run) for _ in range(5)))
        assert len({answer.engine_id for answer in answers}) == 1
        await wait_log_has(engine, run.id, b"once\n")
        assert (await engine.submit(run)).state is RunState.RUNNING
        await engine.cancel(run.id, grace=1.0)
        end = await wait_ended(engine, run.id)
        assert await engine.submit(run) == end
        assert await whole_log(engine, run.id) == b"once\n"

    async def test_unknown_run(self, engine: Engine) -> None:
        unknown = new_run_id()
        assert await engine.observe(unknown) is None
        await engine.cancel(unknown)
        await engine.tidy(unknown)
        await engine.forget(unknown)
        with pytest.raises(NotFound):
            await engine.read_log(unknown, Stream.STDOUT, 0, 10)
        with pytest.raises(NotFound):
            await engine.log_size(unknown, Stream.STDOUT)

    async def test_tidy_keeps_log_and_record(self, engine: Engine) -> None:
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

    async def test_forget(self, engine: Engine) -> None:
        run = self.shell("echo x")
        await engine.submit(run)
        await wait_ended(engine, run.id)

        async def gone() -> bool:
            await engine.forget(run.id)
            return await engine.observe(run.id) is None

        await until(gone, "the run to be forgotten")
        await engine.forget(run.id)

    async def test_forget_does_not_touch_a_live_run(self, engine: Engine) -> None:
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

    async def test_changes(self, engine: Engine) -> None:
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

    async def test_reopening_finds_runs(self, engine: Engine, reopen: Reopen) -> None:
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

    async def test_runs_do_not_see_our_descriptors(self, engine: Engine) -> None:
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
