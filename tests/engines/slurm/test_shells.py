"""Kept shells, against the `sh` of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.engines.slurm.files.remote_rounds import STAGE, WHOLE
from isthmus.engines.slurm.transports.shells import START, Shell, function

pytestmark = pytest.mark.anyio


class Here:
    """A process of this machine, with what `Shell` uses of one over SSH."""

    def __init__(self, process: Process) -> None:
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._process = process

    def close(self) -> None:
        assert self.stdin is not None
        self.stdin.close()

    async def ended(self) -> None:
        """Wait for its end."""
        await self._process.wait()


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    start = asyncio.create_subprocess_shell  # noqa: TID251 - here is no server
    process = await start(START, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    yield Here(process)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


async def test_commands_run_one_after_the_other_with_their_words_and_codes(here: Here) -> None:
    shell = Shell(here)
    done = await shell.run("sh -c 'echo one; echo two >&2; exit 7'")
    assert (done.code, done.out, done.err) == (7, "one\n", "two\n")
    assert (await shell.run("cat", b"x" * 300_000)).out == "x" * 300_000
    odd = "it's \\n \\\\ \\c %s $HOME\n\n \xe9\n"
    assert (await shell.run("cat", odd.encode())).out == odd
    assert (await shell.run("cat")).out == ""
    assert (await shell.run("printf nothing-behind")).out == "nothing-behind"
    assert shell.is_alive


async def test_what_looks_like_the_end_in_the_output_is_not_the_end(here: Here) -> None:
    text = "\n" + "0" * 32 + " 0\n"
    assert (await Shell(here).run("cat", text.encode())).out == text


async def test_a_text_is_called_with_its_words_and_reads_what_is_its_own(here: Here, tmp_path: Path) -> None:
    shell, target = Shell(here), tmp_path / "it's $HOME"
    text = 'umask 077; head -c 5 >"$1"; test -e "$2" || return 9; return 1'
    done = await shell.run(function(text, [str(target), str(tmp_path / "none")]), b"12345", reads=True)
    assert (done.code, target.read_bytes(), target.stat().st_mode & 0o777) == (9, b"12345", 0o600)
    before = os.umask(0)
    os.umask(before)
    assert (await shell.run("sh -c umask")).out.strip() == f"{before:04o}"


async def test_a_command_waits_for_its_input_until_that_is_ready(here: Here, tmp_path: Path) -> None:
    started = tmp_path / "started"

    async def ready() -> None:
        while not started.exists():
            await asyncio.sleep(0.01)

    shell = Shell(here)
    assert (await shell.run(f"sh -c ': >{started}; cat'", b"script\n", ready)).out == "script\n"
    assert (await shell.run("echo next")).out == "next\n"


async def test_a_command_whose_input_never_gets_ready_finds_none(here: Here, tmp_path: Path) -> None:
    read = tmp_path / "read"

    async def ready() -> None:
        raise RuntimeError("not today")

    shell = Shell(here)
    with pytest.raises(RuntimeError, match="not today"):
        await shell.run(f"sh -c 'cat >{read}.new; mv {read}.new {read}'", b"script\n", ready)
    shell.close()
    await here.ended()
    assert read.read_bytes() == b""


async def test_a_shell_that_ends_is_no_answer(here: Here) -> None:
    shell = Shell(here)
    with pytest.raises(EOFError):
        await shell.run("exit 3")
    assert not shell.is_alive  # although it has not been closed


LAUNCH = b"touch $HOME/run-on-the-login-node\n" * 3


async def test_a_folder_that_cannot_be_made_leaves_nothing_for_the_shell_to_run(here: Here, tmp_path: Path) -> None:
    shell, place = Shell(here), str(tmp_path / "no" / "such" / "place")
    done = await shell.run(function(STAGE, [place, f"{place}-final", str(len(LAUNCH))]), LAUNCH + WHOLE, reads=True)
    assert (done.code, "mkdir" in done.err) == (1, True)
    assert (await shell.run("echo next")).out == "next\n"


async def test_a_folder_that_was_cut_off_does_not_appear(here: Here, tmp_path: Path) -> None:
    shell, new, final = Shell(here), tmp_path / "new", tmp_path / "final"
    cut = LAUNCH[:10] + b"\n"
    words = function(STAGE, [str(new), str(final), str(len(cut))])
    with pytest.raises(EOFError):  # what comes behind it is not what should: nobody knows what else is there to read
        await shell.run(words, cut + LAUNCH, reads=True)
    assert (new.exists(), final.exists()) == (False, False)
    await here.ended()


async def test_a_folder_appears_whole_and_once(here: Here, tmp_path: Path) -> None:
    shell, new, final = Shell(here), tmp_path / "new", tmp_path / "final"
    words = function(STAGE, [str(new), str(final), str(len(LAUNCH))])
    for _ in range(2):
        assert (await shell.run(words, LAUNCH + WHOLE, reads=True)).code == 0
    assert (final / "launch").read_bytes() == LAUNCH
    assert sorted(path.name for path in final.iterdir()) == ["launch", "stderr", "stdout", "tmp", "work"]
    assert (await shell.run("echo next")).out == "next\n"
