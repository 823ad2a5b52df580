"""A control plane that is stopped before it submits, and wakes up when another one has submitted the run long since.

What stops a second execution is written down in docs/design/0017.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus._kit.crashpoints import SIGNAL, VARIABLE
from isthmus.engines.base import Run
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.engines import new_run_id, until, wait_ended, wait_log_has

from .conftest import USER, MakeEngine
from .test_exactly_once import jobs_of

pytestmark = [pytest.mark.real, pytest.mark.anyio]
BEFORE_SENDING = ["SharedFiles._prepare:rename", "SharedFiles._create_record:link", "SharedFiles._create_record:unlink"]


class Paused:
    """A control plane that was stopped on its way to submit a run."""

    def __init__(self, settings: SlurmSettings, run_id: str, script: str, point: str) -> None:
        words = [sys.executable, str(Path(__file__).with_name("crashing.py"))]
        words += [settings.folder, str(settings.conf), str(settings.path), USER, run_id, script]
        env = {**os.environ, VARIABLE: point, SIGNAL: "SIGSTOP"}
        self._process = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def wake(self) -> None:
        """Let it go on, to its end."""
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(60)


async def ended_in_slurm(lab: SlurmLab, run_id: str) -> list[str]:
    """The jobs of a run, once Slurm has ended them all."""

    async def all_over() -> bool:
        said = lab.call("squeue", "-h", "-t", "all", "-o", "%T %k").splitlines()
        states = {line.split()[0] for line in said if line.endswith(f"isthmus:{run_id}")}
        return not states & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}

    await until(all_over, "all jobs of the run to end")
    return jobs_of(lab, run_id)


def counting(lab: SlurmLab, run_id: str, more: str = "") -> tuple[Path, str]:
    """A file, and a script that adds a line to it."""
    count = lab.place.shared / f"count-{run_id}"
    count.touch()
    count.chmod(0o666)
    return count, f"echo ran >> {count}{more}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("point", BEFORE_SENDING)
async def test_it_wakes_up_after_the_run_has_ended(
    point: str, lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    run_id = new_run_id()
    count, script = counting(lab, run_id)
    paused = Paused(settings, run_id, script, point)
    engine = await make_engine()
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", script)))
    assert (await wait_ended(engine, run_id)).exit_code == 0
    paused.wake()
    assert len(await ended_in_slurm(lab, run_id)) <= 2
    assert count.read_text() == "ran\n"


async def test_it_wakes_up_while_the_run_runs(lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine) -> None:
    run_id = new_run_id()
    count, script = counting(lab, run_id, "; echo begun; sleep 3; exit 7")
    paused = Paused(settings, run_id, script, BEFORE_SENDING[-1])
    engine = await make_engine()
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", script)))
    await wait_log_has(engine, run_id, b"begun\n")
    paused.wake()
    assert (await wait_ended(engine, run_id)).exit_code == 7
    await ended_in_slurm(lab, run_id)
    assert count.read_text() == "ran\n"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tidied", [True, False])
@pytest.mark.parametrize("point", ["SharedFiles._make_folder:mkdir", "SharedFiles._temporary:open", *BEFORE_SENDING])
async def test_it_wakes_up_when_the_run_is_forgotten(
    point: str, tidied: bool, lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    """Nothing tells it of the run any more; but nothing that could run is there either, and it can make nothing."""
    run_id = new_run_id()
    count, script = counting(lab, run_id)
    paused = Paused(settings, run_id, script, point)
    engine = await make_engine()
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", script)))
    await wait_ended(engine, run_id)
    if tidied:
        await engine.tidy(run_id)
    await engine.forget(run_id)
    paused.wake()
    await ended_in_slurm(lab, run_id)
    assert count.read_text() == "ran\n"


async def test_it_wakes_up_when_the_run_was_cancelled(
    lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    run_id = new_run_id()
    count, script = counting(lab, run_id)
    paused = Paused(settings, run_id, script, BEFORE_SENDING[-1])
    engine = await make_engine()
    await engine.cancel(run_id)
    await wait_ended(engine, run_id)
    paused.wake()
    await ended_in_slurm(lab, run_id)
    assert count.read_text() == ""


async def test_of_jobs_that_begin_together_one_runs(lab: SlurmLab, make_engine: MakeEngine) -> None:
    """Of many jobs with one folder one begins: a name is made once, on every file system that nodes share."""
    engine = await make_engine()
    run_id = new_run_id()
    count, script = counting(lab, run_id)
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", script)))
    await wait_ended(engine, run_id)
    folder = Path(engine._files.folder(run_id))
    for name in ("begun", "ended"):
        (folder / name).unlink()
    count.write_text("")
    shell = f"setpriv --reuid={folder.stat().st_uid} --regid={folder.stat().st_gid} --clear-groups /bin/sh"
    together = [
        subprocess.Popen([*shell.split(), str(folder / "launch")], env={**os.environ, "SLURM_JOB_ID": str(9000 + n)})
        for n in range(8)
    ]
    assert [process.wait(60) for process in together] == [0] * 8
    assert count.read_text() == "ran\n"


async def test_what_starts_a_run_is_removed_first(tmp_path: Path) -> None:
    """A job that begins while the folder is being removed must not find `launch` without `begun`."""
    folder = tmp_path / "runs" / "u.0"
    folder.mkdir(parents=True)
    for name in ("begun", "ended", "launch", "script"):
        (folder / name).touch()
    program = (
        "import asyncio, sys\n"
        "from isthmus.engines.slurm.files.shared import SharedFiles\n"
        "asyncio.run(SharedFiles(sys.argv[1]).remove('u.0', 'root'))\n"
    )
    env = {**os.environ, VARIABLE: "SharedFiles._remove:unlink"}
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=env, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    assert {path.name for path in folder.iterdir()} == {"begun", "ended", "script"}
