"""What a run's folders take on the disk has a limit: measured bit by bit, also what no folder shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Run
from isthmus.engines.local.disk_limits import DiskLimit
from isthmus.testing.engines import new_run_id, wait_ended

from .conftest import ACCOUNT, MakeEngine

MIB = 2**20


def measured(folder: Path, limit: int, processes: set[int] | None = None) -> DiskLimit:
    """A whole measurement."""
    disk = DiskLimit([folder], limit, lambda: processes or set())
    while disk.look(0.0) < 1.0 and not disk.over:
        pass
    return disk


def test_blocks_count_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "deeper" / "file").write_bytes(os.urandom(3 * MIB))
    (folder / "again").hardlink_to(folder / "deep" / "deeper" / "file")
    with (folder / "sparse").open("wb") as file:
        file.truncate(2**40)
    (tmp_path / "elsewhere").write_bytes(os.urandom(8 * MIB))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "away").symlink_to(tmp_path)
    assert measured(folder, 4 * MIB).over == ""
    assert "more than 2 MiB" in measured(folder, 2 * MIB).over


def test_folders_nested_too_deeply_to_be_measured_are_too_much(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    here = os.open(tmp_path / "work", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert measured(tmp_path / "work", 100 * MIB).over


def test_a_deleted_file_that_is_open_counts(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with path.open("wb") as file:
        file.write(os.urandom(3 * MIB))
        file.flush()
        path.unlink()
        assert measured(tmp_path, 2 * MIB).over == ""
        assert measured(tmp_path, 2 * MIB, {os.getpid()}).over


def test_many_files_are_measured_bit_by_bit(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / str(number)).touch()
    disk = DiskLimit([tmp_path], MIB, set)
    pauses = [disk.look(1000.0)]
    while pauses[-1] < 10:
        pauses.append(disk.look(1000.0))
    assert not disk.over
    assert pauses[-1] == 10, "then it rests"


@pytest.mark.anyio
@pytest.mark.real
@pytest.mark.parametrize("where", ["/job/big", "/tmp/big"])
async def test_a_job_that_takes_too_much_disk_is_ended(make_engine: MakeEngine, where: str) -> None:
    engine = await make_engine(max_disk_bytes=64 * MIB)
    script = f"exec 3>{where}; rm {where}; dd if=/dev/zero bs=1M count=100 >&3 2>/dev/null; sleep 600"
    run = Run(new_run_id(), "n", "j", ("sh", "-c", script), account=ACCOUNT, disk_bytes=32 * MIB)
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.DISK_LIMIT
    assert "more than 32 MiB of disk" in end.message
