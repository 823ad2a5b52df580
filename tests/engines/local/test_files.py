"""Files that an untrusted job leaves: patterns, traps, depths, sizes; and the logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import Run, Stream
from isthmus.engines.collecting import find_matches, open_plain, remove_tree
from isthmus.engines.local.logs import LogWatcher
from isthmus.engines.local.staging import copy_content
from isthmus.engines.patterns import OutputPattern
from isthmus.errors import EngineRefused, Invalid
from isthmus.testing.engines import MemorySink, new_run_id, wait_ended

from .conftest import ACCOUNT, MakeEngine

ME = os.getuid()


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "out/a.csv", False),
        ("*.csv", ".a.csv", False),
        (".*", ".a.csv", True),
        ("out/*.csv", "out/a.csv", True),
        ("out", "out/deep/.hidden", True),
        ("out/", "out/a", True),
        ("out", "output", False),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "x/y/a.csv", True),
        ("out/**/a", "out/a", True),
        ("out/**/a", "out/x/y/a", True),
        ("**", "x/y", True),
        ("**", ".git/config", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab]1", "b1", True),
        ("[!a]1", "a1", False),
        ("a.b", "axb", False),
        ("x*y", "x/y", False),
        ("a+b(1)", "a+b(1)", True),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert OutputPattern(pattern).matches(path) is expected


@pytest.mark.parametrize("pattern", ["/etc/*", "../x", "a/../../b", "", "/"])
def test_patterns_that_leave_the_folder(pattern: str) -> None:
    with pytest.raises(Invalid):
        OutputPattern(pattern)


def test_traps_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "fine").write_text("x")
    (tmp_path / "shadow").symlink_to("/etc/shadow")
    (tmp_path / "inside").symlink_to("fine")
    (tmp_path / "up").symlink_to("../outside")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff"))).write_text("x")
    found = find_matches(tmp_path, ["*", "folder/*"], ME)
    kept = {match.path: match.link for match in found if match.skipped is None}
    assert kept == {"fine": None, "inside": "fine", "loop": "loop"}
    assert len([match for match in found if match.skipped]) == 5


def test_a_file_replaced_by_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").symlink_to("/etc/passwd")
    (tmp_path / "b").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("x")
    for path in ("a/file", "b/file", "pipe", "a"):
        with pytest.raises(OSError):
            open_plain(tmp_path, path, ME)
    with pytest.raises(OSError):
        open_plain(tmp_path, "plain", ME + 1)
    fd, info = open_plain(tmp_path, "plain", ME)
    assert info.st_size == 1
    os.close(fd)


def make_deep(folder: Path, depth: int) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_folders_too_deep_for_any_path(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    make_deep(folder, 3000)
    (match,) = find_matches(folder, ["d"], ME)
    assert match.skipped is not None
    remove_tree(folder)
    assert not folder.exists()
    remove_tree(folder)


def test_removing_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    folder = tmp_path / "folder"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)
    (folder / "link").symlink_to(tmp_path / "kept")
    remove_tree(folder)
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").read_text() == "x"


def test_copies_are_copies(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(3_000_000))
    fd = os.open(target, os.O_WRONLY | os.O_CREAT)
    copy_content(source, fd)
    os.close(fd)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_ino != source.stat().st_ino


@pytest.mark.anyio
async def test_sizes_are_limited(make_engine: MakeEngine) -> None:
    engine = await make_engine(max_output_bytes=1000)
    script = "truncate -s 1T sparse; echo small > small; head -c 900 /dev/zero > zeros"
    run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT)
    await engine.submit(run)
    await wait_ended(engine, run.id)
    sink = MemorySink()
    skipped = await engine.collect(run.id, ["*"], sink)
    assert set(sink.files) == {"small", "zeros"}
    assert len(skipped) == 1
    assert "sparse" in skipped[0]


@pytest.mark.anyio
async def test_collecting_waits_for_the_end(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    run = Run(new_run_id(), "n", "j", ("sleep", "1000"), account=ACCOUNT)
    await engine.submit(run)
    with pytest.raises(EngineRefused, match="not ended"):
        await engine.collect(run.id, ["*"], MemorySink())


@pytest.mark.anyio
async def test_a_log_of_a_hundred_megabytes(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    script = "truncate -s 100M /proc/self/fd/1; echo end"
    run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert await engine.log_size(run.id, Stream.STDOUT) == 100 * 2**20 + 4
    assert await engine.read_log(run.id, Stream.STDOUT, 100 * 2**20, 100) == b"end\n"


@pytest.mark.anyio
async def test_logs_grow_for_waiters_also_without_inotify(tmp_path: Path) -> None:
    import asyncio

    for with_inotify in (True, False):
        path = tmp_path / f"log-{with_inotify}"
        path.write_bytes(b"12345")
        tasks = SupervisedTasks()
        watcher = LogWatcher(tasks)
        if with_inotify:
            watcher.open()
        await watcher.wait(path, 3, 60)  # longer already
        waiting = [asyncio.create_task(watcher.wait(path, 5, 60)) for _ in range(3)]
        await asyncio.sleep(0)
        with path.open("ab") as file:
            file.write(b"6")
        async with asyncio.timeout(30):
            await asyncio.gather(*waiting)
        await watcher.wait(path, 6, 0.01)
        await watcher.close()
        await tasks.close()
