"""Processes that are stopped or killed: nothing is lost, and nothing runs twice. See `test_crash_points` too.

The control plane is a child process that opens an engine and submits one run. The job adds a line to a file outside its
folder each time it is executed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus._kit import crashpoints
from isthmus.engines.base import Account, EndReason, Run, RunState
from isthmus.engines.local.processes import start_ticks
from isthmus.testing.effects import choose
from isthmus.testing.engines import new_run_id, until, wait_ended

from .conftest import ACCOUNT, MakeEngine

pytestmark = pytest.mark.anyio
BY_CHANCE = 1

CONTROL_PLANE = """
import asyncio, json, sys
from pathlib import Path
from isthmus.engines.base import Account, Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import LocalSettings

async def main(root, fields, account, visible):
    engine = LocalEngine(LocalSettings(Path(root), isolation="None", visible=()))
    await engine.open()
    await engine.submit(Run(**fields, account=Account(**account)))
    await engine.close()

asyncio.run(main(*json.loads(sys.argv[1])))
"""


@pytest.fixture
def counted(open_folder: Path) -> Path:
    """A file that jobs of any account may add a line to."""
    path = open_folder.parent / "executions"
    path.touch()
    path.chmod(0o666)
    return path


def job(counted: Path, run_id: str) -> dict[str, object]:
    command = ["/bin/sh", "-c", f"echo x >> {counted}; sleep 0.2"]
    return {"id": run_id, "namespace": "n", "job": "j", "command": command}


def submit_in_child(root: Path, fields: dict[str, object], crash_at: str) -> int:
    return start_child(root, fields, crash_at).wait(60)


def start_child(
    root: Path, fields: dict[str, object], crash_at: str = "", by: signal.Signals = signal.SIGKILL, record: str = ""
) -> subprocess.Popen[bytes]:
    argument = json.dumps([str(root), fields, {"uid": ACCOUNT.uid}, []])
    env = {**os.environ, crashpoints.VARIABLE: crash_at, crashpoints.SIGNAL: by.name, crashpoints.RECORD: record}
    return subprocess.Popen([sys.executable, "-c", CONTROL_PLANE, argument], env=env, stderr=subprocess.DEVNULL)


def as_run(fields: dict[str, object]) -> Run:
    return Run(**{**fields, "command": tuple(fields["command"])}, account=Account(uid=ACCOUNT.uid))  # type: ignore


def before_it_is_there(folder: Path, counted: Path) -> list[str]:
    """The places that a submission reaches before the run's folder appears."""
    record = folder / "points"
    fields = {**job(counted, new_run_id()), "command": ["true"]}
    assert start_child(folder / "recorded", fields, record=str(record)).wait(60) == 0
    points = record.read_text().split()
    return points[points.index("submit:begin#1") : points.index("StagedFolder.finish:rename#1")]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_control_plane_is_stopped_and_wakes_up_when_the_run_is_forgotten(
    cancelled: bool,
    open_folder: Path,
    counted: Path,
    make_engine: MakeEngine,
    request: pytest.FixtureRequest,
) -> None:
    """Nothing tells it of the run any more; but what it had prepared is gone, and it can prepare nothing."""
    points, asked = before_it_is_there(open_folder.parent, counted), request.config.getoption("--crash-points")
    chosen = choose(
        points, str(BY_CHANCE) if asked.isdigit() else asked, random.Random(os.environ["ISTHMUS_TEST_SEED"])
    )
    for number, point in enumerate(["submit:begin", *chosen]):
        counted.write_text("")
        await stopped_at(point, open_folder.parent / str(number), counted, make_engine, cancelled=cancelled)


async def stopped_at(point: str, open_folder: Path, counted: Path, make_engine: MakeEngine, *, cancelled: bool) -> None:
    fields = job(counted, new_run_id())
    paused = start_child(open_folder, fields, point, signal.SIGSTOP)
    os.waitpid(paused.pid, os.WUNTRACED)
    engine = await make_engine(root=open_folder, isolation="None")
    run = as_run(fields)
    if cancelled:
        await engine.cancel(run.id)
    else:
        await engine.submit(run)
    await wait_ended(engine, run.id)

    async def forgotten() -> bool:
        await engine.forget(run.id)
        return await engine.observe(run.id) is None

    await until(forgotten, "the run to be forgotten")
    paused.send_signal(signal.SIGCONT)
    assert paused.wait(60) == 1
    assert not engine._layout.run(run.id).path.exists()
    assert counted.read_text() == ("" if cancelled else "x\n")


async def test_supervisor_killed_takes_the_tree_with_it(make_engine: MakeEngine, open_folder: Path) -> None:
    for settings in ({}, {"root": open_folder, "isolation": "None"}):
        engine = await make_engine(**settings)
        script = "(setsid sh -c 'while :; do echo beat; sleep 0.02; done' &) ; echo ready; exec sleep 1000"
        run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT)
        seen = await engine.submit(run)
        changes = engine.changes()
        assert run.id in await anext(changes)

        async def beats(engine: object = engine, run: Run = run) -> bool:
            return await engine.log_size(run.id, "stdout") > 20  # type: ignore

        await until(beats, "the job to write")
        os.kill(int(seen.engine_id), signal.SIGKILL)
        assert run.id in await anext(changes)
        end = await wait_ended(engine, run.id)
        assert end.reason is EndReason.SUPERVISOR_LOST

        async def silent(engine: object = engine, run: Run = run) -> bool:
            size = await engine.log_size(run.id, "stdout")  # type: ignore
            await asyncio.sleep(0.3)  # as long as it takes the job to write again
            return await engine.log_size(run.id, "stdout") == size  # type: ignore

        await until(silent, "the job to fall silent")
        await changes.aclose()  # type: ignore[attr-defined]


async def test_keeper_killed_runs_go_on_and_another_is_started(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    script = "trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done"
    run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT)
    seen = await engine.submit(run)
    stat = Path(f"/proc/{seen.engine_id}/stat").read_text()
    keeper = int(stat[stat.rindex(")") + 2 :].split()[1])
    os.kill(keeper, signal.SIGKILL)

    async def gone() -> bool:
        return start_ticks(keeper) is None

    await until(gone, "the keeper to be gone")
    other = Run(new_run_id(), "n", "j", ("true",), account=ACCOUNT)
    await engine.submit(other)
    assert (await wait_ended(engine, other.id)).exit_code == 0
    again = await engine.observe(run.id)
    assert again is not None
    assert again.state is RunState.RUNNING
    await engine.cancel(run.id, grace=60)
    assert (await wait_ended(engine, run.id)).reason is EndReason.CANCELLED


async def test_ended_while_nobody_looked(make_engine: MakeEngine, open_folder: Path, counted: Path) -> None:
    fields = job(counted, new_run_id())
    assert submit_in_child(open_folder, fields, "LocalEngine.submit:start_run") == -signal.SIGKILL

    async def executed() -> bool:
        return (open_folder / "runs" / str(fields["id"]) / "ended").exists()

    await until(executed, "the job to end without a control plane")
    engine = await make_engine(root=open_folder, isolation="None")
    changes = engine.changes()
    assert fields["id"] in await anext(changes)
    end = await engine.observe(str(fields["id"]))
    assert end is not None
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0)
    await changes.aclose()  # type: ignore[attr-defined]
