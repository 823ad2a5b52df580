"""Places where a process dies, and what is known of those that it reached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from isthmus._kit.crashpoints import RECORD, VARIABLE

LIFE = "from isthmus._kit.crashpoints import reach\nfor point in 'abab': reach(point)"


def live(record: Path, *kills: str) -> int:
    env = {**os.environ, RECORD: str(record), VARIABLE: ",".join(kills)}
    return subprocess.run([sys.executable, "-c", LIFE], env=env, timeout=60, check=False).returncode


def test_each_of_several_places_kills_once_in_the_lives_of_processes_that_follow_each_other(tmp_path: Path) -> None:
    record = tmp_path / "points"
    ends = [live(record, "b", "a#3") for _ in range(3)]
    assert ends == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert record.read_text().split() == ["a#1", "b#1", "a#2", "b#2", "a#3", "a#4", "b#3", "a#5", "b#4"]
