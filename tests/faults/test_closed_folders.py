"""Folders that a job has closed to us, where it runs under our own account: they are read and removed all the same."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.engines.collecting import find_matches, remove_tree

NOBODY = 65534


@pytest.fixture
def work() -> Iterator[Path]:
    """A working folder of an ordinary account, closed to its owner."""
    home = Path(tempfile.mkdtemp(prefix="isthmus-closed-"))
    folder = home / "work"
    (folder / "inner/deeper").mkdir(parents=True)
    (folder / "kept").write_text("content")
    (folder / "inner/lost").write_text("content")
    if os.geteuid() == 0:
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    (folder / "inner/deeper").chmod(0o000)
    (folder / "inner").chmod(0o000)
    folder.chmod(0o000)
    yield folder
    shutil.rmtree(home, ignore_errors=True)


def as_anybody(act: Callable[[], None]) -> None:
    """Do something without the rights of root."""
    if os.geteuid() != 0:
        act()
        return
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_closed_folder_is_collected_from(work: Path) -> None:
    def act() -> None:
        found = {match.path: match.skipped for match in find_matches(work, ["**"], os.getuid())}
        assert found["kept"] is None
        assert "cannot be read" in (found["inner"] or "")

    as_anybody(act)


def test_a_closed_folder_is_removed(work: Path) -> None:
    as_anybody(lambda: remove_tree(work))
    assert not work.exists()
