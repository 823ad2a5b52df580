"""The commands in the README of the scheduling benchmark work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.test_tutorials import Command, Saved, missing_line, steps

ROOT = Path(__file__).parents[3]
README = ROOT / "benchmarks" / "scheduling" / "README.md"


def test_every_command_writes_what_the_page_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = dict(os.environ, PATH=path, PYTHONPATH=str(ROOT), COLUMNS="120")
    commands = 0
    for step in steps(README.read_text()):
        if isinstance(step, Saved):
            (tmp_path / step.name).parent.mkdir(exist_ok=True)
            (tmp_path / step.name).write_text(step.text)
            continue
        assert isinstance(step, Command)
        commands += 1
        done = subprocess.run(
            ["bash", "-c", step.text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        assert missing_line(step.expected, done.stdout + done.stderr) is None
    assert commands == 3
