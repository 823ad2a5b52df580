"""Many runs in one command over SSH: each is served as if it were alone, by the `sh` of this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from isthmus.engines.slurm.files.base import LaunchFile
from isthmus.engines.slurm.files.remote_rounds import MOST_RUNS, RemoteRounds
from isthmus.engines.slurm.transports.commands import Done
from isthmus.engines.slurm.transports.shells import function
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable, Superseded

pytestmark = pytest.mark.anyio
RUNS = [f"{number:08d}-run.0" for number in range(5)]
NEXT = b"rm -rf everything\n"
"""What must be left for the shell, and nothing before it."""


class Here:
    """Calls texts here; notes how many words each had."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    async def call(self, text: str, *words: str, stdin: bytes = b"", reads: bool = False, **_: Any) -> Done:
        self.calls.append(words)
        given, rest = (stdin + NEXT, NEXT) if reads else (b"", b"")
        line = f"{function(text, words)}; code=$?; echo; echo left; cat; exit $code"
        run = asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", line], input=given, capture_output=True, check=False)
        done = await run
        out, _, left = done.stdout.rpartition(b"\nleft\n")
        assert left == rest
        return Done(done.returncode, out.decode(), done.stderr.decode())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "it's a folder"
    for name in ("active", "over", "staging/site.new", "runs"):
        (root / name).mkdir(parents=True)
    return root


def rounds_at(root: Path, here: Here) -> RemoteRounds:
    return RemoteRounds(str(root), str(root / "staging" / "site.new"), cast(SshConnections, here))


async def together(*calls: Any) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_folders_of_many_runs_appear_whole(root: Path) -> None:
    here = Here()
    rounds, runs = rounds_at(root, here), root / "runs"
    (runs / ".batch-site.old.0").mkdir()  # of one that was killed
    (runs / ".batch-other.0").mkdir()  # of another site
    (runs / RUNS[3]).mkdir()
    (runs / RUNS[3] / "launch").write_text("as it was")
    (runs / RUNS[4]).symlink_to(root)  # by somebody who can guess the name of the next try
    files = {"launch": LaunchFile("echo it\n"), "script": LaunchFile("#!/bin/sh\n", 0o500)}
    done = await together(*(rounds.stage(run, "me", files) for run in RUNS))
    assert done[:4] == [True] * 4
    assert isinstance(done[4], SiteUnavailable)
    assert len(here.calls) == 1
    for run in RUNS[:3]:
        assert sorted(os.listdir(runs / run)) == ["launch", "script", "stderr", "stdout", "tmp", "work"]
        assert [(runs / run / name).stat().st_mode & 0o777 for name in ("launch", "script")] == [0o400, 0o500]
    assert os.listdir(runs / RUNS[3]) == ["launch"]
    assert sorted(os.listdir(runs)) == [".batch-other.0", *RUNS]


async def test_large_files_and_odd_names_go_alone(root: Path) -> None:
    rounds = rounds_at(root, Here())
    assert not await rounds.stage(RUNS[0], "me", {"launch": LaunchFile("x" * 70_000)})
    assert not await rounds.stage("$(reboot)", "me", {"launch": LaunchFile("x")})
    assert not await rounds.append("a b", b"{}", ends=True)


async def test_a_round_is_limited(root: Path) -> None:
    here = Here()
    rounds = rounds_at(root, here)
    many = [f"{number:08d}-run.0" for number in range(3 * MOST_RUNS)]
    assert await together(*(rounds.create_record(run, b"{}") for run in many)) == [True] * len(many)
    assert len(here.calls) == 3


async def test_records_of_many_runs_are_made_once(root: Path) -> None:
    here = Here()
    rounds = rounds_at(root, here)
    (root / "over" / RUNS[0]).write_bytes(b"over")
    (root / "active" / RUNS[1]).write_bytes(b"another's")
    record = b'{"name": "it\'s \\\\n $HOME `x`  "}'
    assert await together(*(rounds.create_record(run, record) for run in RUNS)) == [False, False, True, True, True]
    assert len(here.calls) == 1
    assert [(root / "active" / run).read_bytes() for run in RUNS[1:3]] == [b"another's", record]
    assert not (root / "active" / RUNS[0]).exists()
    assert await together(*(rounds.create_record(run, b"{}") for run in RUNS)) == [False] * 5


async def test_whoever_was_superseded_makes_no_record(root: Path) -> None:
    rounds = rounds_at(root, Here())
    (root / "staging" / "site.new").rmdir()
    done = await together(*(rounds.create_record(run, b"{}") for run in RUNS))
    assert all(isinstance(error, Superseded) for error in done)
    assert os.listdir(root / "active") == []


async def test_lines_are_added_to_records_that_are_there(root: Path) -> None:
    here = Here()
    rounds = rounds_at(root, here)
    (root / "over" / RUNS[0]).write_bytes(b"over")
    for run in RUNS[2:]:
        (root / "active" / run).write_bytes(b"{}")
    line = b'{"name": "it\'s \\\\n $HOME %s"}'
    done = await together(*(rounds.append(run, line, ends=run in RUNS[3:]) for run in RUNS))
    assert done == [False, False, True, True, True]  # of the first two somebody else has to say why
    assert len(here.calls) == 1
    assert (sorted(os.listdir(root / "active")), sorted(os.listdir(root / "over"))) == ([RUNS[2]], [RUNS[0], *RUNS[3:]])
    assert (root / "active" / RUNS[2]).read_bytes() == (root / "over" / RUNS[4]).read_bytes() == b"{}\n" + line
    assert (root / "over" / RUNS[0]).read_bytes() == b"over"


async def test_no_file_speaks_for_another(root: Path) -> None:
    here = Here()
    rounds = rounds_at(root, here)
    for run in RUNS:
        (root / "runs" / run).mkdir()
    texts = [f"code=1\n{RUNS[1]}/ended:code=0\n", "code=7\n", "", "x" * 9000]
    for run, text in zip(RUNS, texts, strict=False):
        (root / "runs" / run / "ended").write_text(text)
    os.mkfifo(root / "runs" / RUNS[4] / "ended")
    seen = await together(*(rounds.read_small(run, "me", "ended") for run in [*RUNS, "00000009-none.0"]))
    assert seen == [texts[0].encode(), b"code=7\n", None, None, None, None]
    assert len(here.calls) == 1
