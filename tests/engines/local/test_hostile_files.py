"""Files that a job can reach and the local engine reads: whatever they are, nobody else is harmed."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus._kit.files import NotRegular, open_regular, read_regular
from isthmus.engines.base import EndReason, Run, Stream
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.layout import read_record
from isthmus.errors import EngineRefused
from isthmus.testing.engines import FolderSource, new_run_id, wait_ended

from .conftest import ACCOUNT, MakeEngine

GARBAGE = b"\xff\xfe{[(\x00\n=\xc2\xb2\n" * 50


def a_socket(path: Path) -> None:
    made = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        made.bind(path.name)
    finally:
        os.chdir(here)
        made.close()


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


MAKERS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(GARBAGE),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "a list": lambda path: path.write_bytes(b"[1, 2]"),
    "wrong types": lambda path: path.write_text(
        '{"pid": "x", "ticks": [], "at": "soon", "reason": 7, "usage": {"a": 1}, "exit_code": {}, "devices": 3}'
    ),
    "out of bounds": lambda path: path.write_text(
        '{"pid": 1e99, "ticks": -1, "at": 1e300, "reason": "No", "usage": [1], "exit_code": 1e400, "devices": {"a": 1}}'
    ),
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": a_socket,
    "huge": huge,
}


@pytest.mark.parametrize("what", ["a folder", "a pipe", "a link", "a link to a device", "a socket"])
def test_only_plain_files_are_opened(what: str, tmp_path: Path) -> None:
    MAKERS[what](tmp_path / "f")
    with pytest.raises(NotRegular):
        open_regular(tmp_path / "f")
    assert read_record(tmp_path / "f") == {}


def test_no_more_is_read_than_is_wanted(tmp_path: Path) -> None:
    huge(tmp_path / "f")
    assert len(read_regular(tmp_path / "f", 1000)) == 1000


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["ended", "started", "spec.json", "cancel", "stdout.log", "stderr.log", "samples"])
async def test_a_file_of_a_local_run_may_be_anything(
    name: str, make_engine: MakeEngine, root: Path, tmp_path: Path
) -> None:
    """Where accounts are shared a job can reach them. Each in turn, and another job goes on as if nothing were."""
    engine: LocalEngine = await make_engine(rescan_seconds=0.05)
    broken = {what: f"{new_run_id()}" for what in MAKERS}
    for what, run_id in broken.items():
        folder = root / "runs" / run_id
        folder.mkdir()
        if name != "started":
            (folder / "started").write_text('{"pid": 999999999, "ticks": 1, "at": 1763000000, "boot": "before"}')
        MAKERS[what](folder / name)
    good = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", "echo fine"), account=ACCOUNT)
    await engine.submit(good)
    assert (await wait_ended(engine, good.id)).exit_code == 0
    for run_id in broken.values():
        seen = await engine.observe(run_id)
        assert seen is None or seen.reason in (None, EndReason.NODE_LOST, EndReason.SUPERVISOR_LOST)
        for stream in ("stdout", "stderr"):
            assert len(await engine.read_log(run_id, stream, 0, 100)) <= 100  # type: ignore[arg-type]
        assert len(await engine.read_samples(run_id, 0, 100)) <= 100
    second = await make_engine()
    assert (await second.observe(good.id)) is not None
    assert engine.tasks.failures() == {}


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["link/x.out", "folder", "file/x.out", "folder/deep/link/x.out"])
async def test_the_log_is_put_nowhere_by_a_link_nor_over_a_folder(
    engine: LocalEngine, tmp_path: Path, root: Path, name: str
) -> None:
    """What was sent may lead anywhere step by step; the names of logs are made by us, who may be root."""
    sent: dict[str, bytes | str] = {
        "folder/deep/kept": b"",
        "link": "-> folder",
        "folder/deep/link": "-> ..",
        "file": b"",
    }
    run = Run(
        new_run_id(),
        "t",
        "hostile",
        command=("true",),
        account=ACCOUNT,
        log_files={Stream.STDOUT: name},
        append_logs=True,
    )
    with pytest.raises(EngineRefused, match=f"cannot be written to '{name}'"):
        await engine.submit(run, FolderSource(tmp_path / "source", sent))
    assert not list(root.rglob("x.out"))
