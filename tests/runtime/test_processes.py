"""Whether the holder of a lease has died is known only where it can be known."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from isthmus.runtime.processes import has_died, mark_of


def test_a_process_that_runs_lives() -> None:
    assert mark_of(os.getpid())
    assert not has_died(mark_of(os.getpid()))


def test_one_that_was_killed_has_died_also_before_its_parent_took_notice() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    mark = mark_of(process.pid)
    assert not has_died(mark)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the list of processes
    assert has_died(mark)
    process.wait()
    assert has_died(mark)


def test_an_id_that_another_process_has_now_is_no_sign_of_life() -> None:
    place, _, began = mark_of(os.getpid()).rpartition("/")
    assert has_died(f"{place}/{int(began) - 1}")


@pytest.mark.parametrize(
    "mark",
    [
        "",
        "/",
        "//",
        "x",
        "a/b/c/d",
        "another-boot/pid:[4026531836]/1/1",
        f"/{2**70}/1",
        "a/pid:[1]/-1/5",
        "a/pid:[1]/²/5",
    ],
)
def test_what_cannot_be_known_is_not_dead(mark: str) -> None:
    assert not has_died(mark)


def test_a_process_elsewhere_is_not_looked_for() -> None:
    boot, space, pid, began = mark_of(os.getpid()).split("/")
    assert not has_died(f"{boot}/pid:[1]/{2**22 + 7}/{began}")
    assert not has_died(f"{'0' * len(boot)}/{space}/{2**22 + 7}/{began}")
    assert has_died(f"{boot}/{space}/{2**22 + 7}/{began}"), "beyond the highest id there can be"
    assert pid == str(os.getpid())
