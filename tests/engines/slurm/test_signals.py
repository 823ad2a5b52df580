"""A program that is signalled is reported with its own exit, whatever the shell of the cluster and whenever it comes.

The batch script is run here as a node runs it, without Slurm: hundreds of times, with signals at random moments.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Run
from isthmus.engines.slurm.batch import scripts
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.observing.observations import Word, read_word
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.engines import new_run_id, wait_ended, wait_log_has, whole_log

TIMES = 40
SHELLS = [words for words in (["dash"], ["bash", "--posix"], ["bash"], ["busybox", "sh"]) if shutil.which(words[0])]
SAVES = "trap 'exit 7' USR1; : >{ready}; while :; do sleep 0.05 & wait $!; done"
"""A program that saves and leaves when it is asked to."""


def started(shell: list[str], folder: Path, program: str) -> subprocess.Popen[bytes]:
    """The batch script of a run whose program is this one, on its way."""
    (folder / "work").mkdir(parents=True)
    run = Run("u.0", "t", "signals", command=("/bin/sh", "-c", program.format(ready=folder / "ready")))
    text = scripts.launch(
        scripts.batch(run, str(folder), "ann", metered=False, ask_usage=False),
        scripts.program(run, str(folder), {}),
        "exec sleep 1000\n",
    )
    (folder / "launch").write_text(text)
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}
    begun = subprocess.Popen([*shell, str(folder / "launch")], env=env, stdin=subprocess.DEVNULL)
    while not (folder / "ready").exists():
        assert begun.poll() is None
        time.sleep(0.001)
    return begun


def ended(folder: Path) -> Word:
    word = read_word((folder / "ended").read_text())
    assert word is not None
    return word


def exit_of(shell: list[str], folder: Path, program: str, signals: list[tuple[float, int]]) -> tuple[int, int]:
    """What the script wrote down, and what it ended with itself, when it was sent these signals after these pauses."""
    process = started(shell, folder, program)
    for pause, number in signals:
        time.sleep(pause)
        process.send_signal(number)
    left = process.wait(30)
    return ended(folder).code, left


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("burst", [1, 3])
def test_a_trapped_signal_does_not_hide_the_exit(shell: list[str], burst: int, tmp_path: Path) -> None:
    chance = random.Random(burst)
    plans = [[(chance.random() * 0.004, signal.SIGUSR1) for _ in range(burst)] for _ in range(TIMES)]
    with ThreadPoolExecutor(8) as threads:
        work = [
            threads.submit(exit_of, shell, tmp_path / str(number), SAVES, plan) for number, plan in enumerate(plans)
        ]
        assert {item.result() for item in work} == {(7, 7)}


@pytest.mark.real
@pytest.mark.anyio
async def test_a_signal_from_slurm_to_the_batch_script(lab: SlurmLab, engine: SlurmEngine) -> None:
    script = "trap 'echo saved; exit 7' USR1; echo ready; while :; do sleep 0.05 & wait $!; done"
    runs = [Run(new_run_id(), "t", "signals", command=("/bin/sh", "-c", script)) for _ in range(8)]
    for run in runs:
        await engine.submit(run)
    for run in runs:
        await wait_log_has(engine, run.id, b"ready\n")
        seen = await engine.observe(run.id)
        assert seen is not None
        lab.call("scancel", "-b", "-s", "USR1", seen.engine_id)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code, end.signal) == (EndReason.COMPLETED, 7, None)
        assert await whole_log(engine, run.id) == b"ready\nsaved\n"
