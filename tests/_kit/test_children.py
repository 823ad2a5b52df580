"""Programs that the server runs: bounded in output and time, and ended with all that they started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus._kit import children
from isthmus._kit.children import Children, TooMuchOutput

pytestmark = pytest.mark.anyio
ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def pool() -> Iterator[Children]:
    made = Children(4)
    yield made
    made.close()


async def test_it_reads_what_it_is_given_and_both_streams_come_back(pool: Children) -> None:
    text = os.urandom(3_000_000)
    ended = await pool.run(["sh", "-c", "tee /dev/stderr; exit 7"], env=ENV, stdin=text, seconds=60)
    assert (ended.code, ended.out, ended.err) == (7, text, text)


async def test_without_input_it_reads_nothing(pool: Children) -> None:
    ended = await pool.run(["cat"], env=ENV, seconds=60)
    assert (ended.code, ended.out) == (0, b"")


async def test_a_program_that_does_not_read_its_input_is_no_error(pool: Children) -> None:
    ended = await pool.run(["true"], env=ENV, stdin=b"x" * 1_000_000, seconds=60)
    assert ended.code == 0


async def test_it_sees_only_the_environment_and_folder_that_it_is_given(pool: Children, tmp_path: Path) -> None:
    ended = await pool.run(["sh", "-c", "pwd; env"], env={**ENV, "ONE": "1"}, cwd=str(tmp_path), seconds=60)
    lines = ended.out.decode().splitlines()
    assert lines[0] == str(tmp_path)
    assert {line.partition("=")[0] for line in lines[1:]} <= {"PATH", "ONE", "PWD", "OLDPWD", "SHLVL", "_"}


async def test_the_signal_that_ended_it_is_told(pool: Children) -> None:
    assert (await pool.run(["sh", "-c", "kill -9 $$"], env=ENV, seconds=60)).code == -9


async def test_what_is_not_there_is_said(pool: Children) -> None:
    with pytest.raises(FileNotFoundError):
        await pool.run(["there-is-no-such-program"], env=ENV, seconds=60)


async def test_more_than_is_read_ends_it(pool: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_OUTPUT", 100_000)
    with pytest.raises(TooMuchOutput):
        await pool.run(["yes"], env=ENV, seconds=60)


async def test_what_does_not_end_in_time_is_ended_with_all_that_it_started(pool: Children, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        await pool.run(["sh", "-c", f"sleep 600 & echo $! >{note}; wait"], env=ENV, seconds=1.5)
    await _gone(int(note.read_text()))


async def test_whoever_no_longer_waits_ends_it(pool: Children, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    words = ["sh", "-c", f"echo $$ >{note}.new; mv {note}.new {note}; sleep 600"]
    task = asyncio.create_task(pool.run(words, env=ENV, seconds=600))
    while not note.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(int(note.read_text()))


async def test_more_than_may_run_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    pool = Children(2)
    line = f"mkdir {tmp_path}/$$; ls {tmp_path} | wc -l; sleep 0.05; rmdir {tmp_path}/$$"
    ended = await asyncio.gather(*(pool.run(["sh", "-c", line], env=ENV, seconds=60) for _ in range(10)))
    pool.close()
    assert max(int(one.out) for one in ended) <= 2


async def _gone(pid: int) -> None:
    async with asyncio.timeout(20):
        while _alive(pid):
            await asyncio.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


async def test_a_child_is_started_at_once_and_given_its_input_when_that_is_ready(
    pool: Children, tmp_path: Path
) -> None:
    started = tmp_path / "started"

    async def ready() -> None:
        while not started.exists():
            await asyncio.sleep(0.01)

    ended = await pool.run(["sh", "-c", f": >{started}; cat"], env=ENV, stdin=b"the input", seconds=60, ready=ready)
    assert (ended.code, ended.out) == (0, b"the input")


async def test_a_child_whose_input_does_not_get_ready_is_given_none_and_ended(pool: Children, tmp_path: Path) -> None:
    read = tmp_path / "read"

    async def ready() -> None:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        await pool.run(
            ["sh", "-c", f"cat >{read}.new && mv {read}.new {read}"], env=ENV, stdin=b"x", seconds=60, ready=ready
        )
    assert not read.exists() or read.read_bytes() == b""


async def test_an_input_that_does_not_fit_into_a_pipe_is_awaited_first(pool: Children) -> None:
    done: list[bool] = []

    async def ready() -> None:
        done.append(True)

    text = os.urandom(1_000_000)
    assert (await pool.run(["cat"], env=ENV, stdin=text, seconds=60, ready=ready)).out == text
    assert done


async def test_a_child_that_does_not_wait_for_its_input_is_no_error(pool: Children) -> None:
    async def ready() -> None:
        await asyncio.sleep(0.1)

    assert (await pool.run(["false"], env=ENV, stdin=b"x", seconds=60, ready=ready)).code == 1
