"""Standard input of `isthmus run`: sent when it was meant for the command, and left alone otherwise."""

from __future__ import annotations

import io
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus import Client
from isthmus.client.standard_input import copy
from isthmus.errors import TooLarge
from tests.cli.conftest import Call, Server

ISTHMUS = shlex.join([sys.executable, "-m", "isthmus.cli"])


@pytest.fixture
def shell(server: Server, environment: dict[str, str], tmp_path: Path) -> Call:
    """A line of shell, with a signed-in `$isthmus`."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    (work / "list").write_text("one\ntwo\nthree\n")
    given = {**environment, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token, "isthmus": ISTHMUS}

    def call(line: str, **options: object) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-c", line]
        opened = {"stdin": subprocess.DEVNULL, "timeout": 120, **options}
        return subprocess.run(words, cwd=work, env=given, capture_output=True, text=True, check=False, **opened)  # type: ignore[call-overload, no-any-return]

    return call


def test_a_pipe_is_read_by_the_job_with_and_without_a_folder(shell: Call) -> None:
    assert shell("printf 'a\\0b' | $isthmus run -q -- cat; :").stdout == "a\0b"
    found = shell("printf hi | $isthmus run -q --no-files -- sh -c 'ls; cat'; :")
    assert (found.stdout, found.stderr) == ("hi", "")
    detached = shell("job=$(echo later | $isthmus run -q -d -- cat) && $isthmus logs -f $job")
    assert detached.stdout == "later\n"


def test_a_file_is_read_from_its_beginning(shell: Call) -> None:
    assert shell("$isthmus run -q -- cat <list; :").stdout == "one\ntwo\nthree\n"
    assert shell("$isthmus run -q -- cat <<<word; :").stdout == "word\n"


@pytest.mark.parametrize("loop", ["while read x; do {}; done <list", "cat list | while read x; do {}; done"])
def test_the_input_of_a_loop_is_left_to_the_loop(shell: Call, loop: str) -> None:
    found = shell(loop.format("$isthmus run -q -- sh -c 'echo $0; cat' $x"))
    assert found.stdout == "one\ntwo\nthree\n"
    reported = shell("cat list | (sleep 0.2; $isthmus run -- cat; :)").stderr
    assert "-i sends it" in reported
    assert shell("cat list | (read x; $isthmus run -q -i -- cat; :)").stdout == "two\nthree\n"
    assert shell("cat list | ($isthmus run --no-stdin -- cat; :)").stderr == ""


def test_nothing_and_no_end(isthmus: Call, shell: Call) -> None:
    assert (
        shell("$isthmus run -q -- cat </dev/null && $isthmus run -q -- cat <&- && : | $isthmus run -q -- cat").stdout
        == ""
    )
    assert "contradict" in shell("$isthmus run -i --no-stdin -- cat").stderr
    ours, theirs = pty.openpty()
    assert isthmus("run", "-q", "--", "sh", "-c", "cat; echo end", stdin=theirs).stdout == "end\n"
    os.write(ours, b"typed\n\x04")
    assert isthmus("run", "-q", "-i", "--", "cat", stdin=theirs).stdout == "typed\n"
    os.close(ours)
    os.close(theirs)


def test_python_sends_bytes_and_files(server: Server, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    with Client(url=server.url, token=server.token) as client:
        jobs = [client.run(["cat"], files=None, stdin=given) for given in (b"bytes", tmp_path / "in")]
        assert [job.wait(check=True).text() for job in jobs] == ["bytes", "from a file"]


def test_the_bound_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 11)
    descriptor = os.open(tmp_path / "in", os.O_RDONLY)
    with pytest.raises(TooLarge, match="put it into a file"):
        copy(descriptor, io.BytesIO(), most=10)
    os.close(descriptor)
