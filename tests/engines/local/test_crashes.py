"""A process killed at any step of a submission: nothing is lost, and nothing runs twice.

The control plane is a child process that opens an engine and submits one run; it, or the supervisor, is killed at a
named point. Then another control plane submits the same run again. The job adds a line to a file outside its folder
each time it is executed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus.engines.local
from isthmus._kit import crashpoints
from isthmus.engines.base import Account, EndReason, Run, RunState
from isthmus.engines.local.processes import start_ticks
from isthmus.errors import SiteUnavailable
from isthmus.testing.engines import new_run_id, until, wait_ended

from .conftest import ACCOUNT, MakeEngine

pytestmark = pytest.mark.anyio

BEFORE_START = ["submit:begin", "submit:staging", "submit:staged", "submit:prepared"]
AFTER_START = ["submit:asked"]
SUPERVISOR_BEFORE_START = ["supervisor:locked", "supervisor:limited", "supervisor:forked"]
SUPERVISOR_AFTER_START = ["supervisor:started", "supervisor:going", "supervisor:over"]
SUPERVISOR_AFTER_END = ["supervisor:ended"]

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
    root: Path, fields: dict[str, object], crash_at: str, by: signal.Signals = signal.SIGKILL
) -> subprocess.Popen[bytes]:
    argument = json.dumps([str(root), fields, {"uid": ACCOUNT.uid}, []])
    env = {**os.environ, crashpoints.VARIABLE: crash_at, crashpoints.SIGNAL: by.name}
    return subprocess.Popen([sys.executable, "-c", CONTROL_PLANE, argument], env=env, stderr=subprocess.DEVNULL)


def as_run(fields: dict[str, object]) -> Run:
    return Run(**{**fields, "command": tuple(fields["command"])}, account=Account(uid=ACCOUNT.uid))  # type: ignore


def test_every_point_is_tested() -> None:
    folder = Path(isthmus.engines.local.__file__).parent
    placed = {point for path in folder.glob("*.py") for point in re.findall(r'reach\("([^"]+)"\)', path.read_text())}
    tested = BEFORE_START + AFTER_START + SUPERVISOR_BEFORE_START + SUPERVISOR_AFTER_START + SUPERVISOR_AFTER_END
    assert placed == set(tested)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", BEFORE_START + AFTER_START)
async def test_control_plane_is_killed(point: str, open_folder: Path, counted: Path, make_engine: MakeEngine) -> None:
    fields = job(counted, new_run_id())
    assert submit_in_child(open_folder, fields, point) == -signal.SIGKILL
    engine = await make_engine(root=open_folder, isolation="None")
    run = as_run(fields)
    if point in BEFORE_START:
        assert await engine.observe(run.id) is None
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0)
    assert counted.read_text() == "x\n"
    assert not list(engine._layout.staging.rglob(f"{run.id}*"))


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("point", BEFORE_START)
async def test_control_plane_is_stopped_and_wakes_up_when_the_run_is_forgotten(
    point: str, cancelled: bool, open_folder: Path, counted: Path, make_engine: MakeEngine
) -> None:
    """Nothing tells it of the run any more; but what it had prepared is gone, and it can prepare nothing."""
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", SUPERVISOR_BEFORE_START)
async def test_supervisor_is_killed_before_the_start(
    point: str, open_folder: Path, counted: Path, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(crashpoints.VARIABLE, point)
    first = await make_engine(root=open_folder, isolation="None")
    run = as_run(job(counted, new_run_id()))
    with pytest.raises(SiteUnavailable):
        await first.submit(run)
    assert await first.observe(run.id) is None
    monkeypatch.delenv(crashpoints.VARIABLE)
    await first.stop_keeper()
    await first.submit(run)
    assert (await wait_ended(first, run.id)).exit_code == 0
    assert counted.read_text() == "x\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("point", SUPERVISOR_AFTER_START + SUPERVISOR_AFTER_END)
async def test_supervisor_is_killed_after_the_start(
    point: str, open_folder: Path, counted: Path, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(crashpoints.VARIABLE, point)
    first = await make_engine(root=open_folder, isolation="None")
    run = as_run(job(counted, new_run_id()))
    await first.submit(run)
    end = await wait_ended(first, run.id)
    expected = EndReason.COMPLETED if point in SUPERVISOR_AFTER_END else EndReason.SUPERVISOR_LOST
    assert end.reason is expected
    monkeypatch.delenv(crashpoints.VARIABLE)
    await first.stop_keeper()
    # It may have run once, and is never run again: whether to try anew is not the engine's to decide.
    assert await first.submit(run) == end
    assert counted.read_text() in ("", "x\n")


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
    assert submit_in_child(open_folder, fields, "submit:asked") == -signal.SIGKILL

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
