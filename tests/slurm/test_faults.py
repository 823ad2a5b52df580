"""What goes wrong on clusters: nothing is lost, run twice, or called gone because a question failed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, RunState, Stream
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.errors import SiteUnavailable
from isthmus.lab import processes
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.lab.slurm.login import LoginNode
from isthmus.testing.engines import until, wait_ended, wait_log_has, whole_log

from .conftest import SSH_USER, MakeEngine, settings_of, ssh_settings
from .test_exactly_once import jobs_of, run_of

pytestmark = [pytest.mark.real, pytest.mark.anyio]
QUICK = {"MessageTimeout": "5"}


@pytest.fixture
def broken() -> Iterator[SlurmLab]:
    """A lab to break."""
    folder = Path(tempfile.mkdtemp(prefix="isl-"))
    folder.chmod(0o711)
    made = SlurmLab(folder / "lab")
    try:
        made.up(2, LabSettings(options=QUICK))
        yield made
    finally:
        made.down(erase=True)
        shutil.rmtree(folder)


async def running(engine: SlurmEngine, run_id: str) -> bool:
    seen = await engine.observe(run_id)
    return seen is not None and seen.state is RunState.RUNNING


async def test_slurmctld_is_down_and_comes_back(broken: SlurmLab, make_engine: MakeEngine) -> None:
    engine = await make_engine(settings_of(broken))
    run = run_of("echo begun; sleep 3; echo done")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    await asyncio.to_thread(broken.stop_controller)
    assert await running(engine, run.id), "what was known stays known"
    late = run_of("echo late")
    with pytest.raises(SiteUnavailable):
        await engine.submit(late)
    with pytest.raises(SiteUnavailable):
        await engine.probe(())
    await wait_log_has(engine, run.id, b"done\n")
    assert await running(engine, run.id), "its end is not known while nobody can be asked"
    await asyncio.to_thread(broken.start_controller)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    await engine.submit(late)
    assert (await wait_ended(engine, late.id)).exit_code == 0
    assert len(jobs_of(broken, late.id)) == 1


async def test_slurmctld_is_started_cold(broken: SlurmLab, make_engine: MakeEngine) -> None:
    """It forgets everything: what had ended is known by its own word, what waited is sent again, numbers are reused."""
    settings = settings_of(broken)
    engine = await make_engine(settings)
    over, lost = run_of("echo over; exit 5"), run_of("echo running; exec sleep 1000")
    await engine.submit(over)
    await wait_log_has(engine, over.id, b"over\n")
    await engine.submit(lost)
    await wait_log_has(engine, lost.id, b"running\n")
    blocked = run_of("echo mine", nodes=2, tasks=2, milli_cpus=4000)
    await engine.submit(blocked)
    first = engine._active[blocked.id].record.job
    await engine.close()
    await asyncio.to_thread(broken.stop_controller)
    for number in (1, 2):
        broken.node(broken.place.node_name(number)).clean()
    for file in (broken.place.root / "state").glob("*"):
        if file.name != "jwt.key":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    await asyncio.to_thread(broken.start_controller)
    await asyncio.to_thread(broken.up, 2)
    other = broken.call("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 1000").strip()
    assert int(other) <= (first or 0), "a number is another's now"
    again = await make_engine(settings)
    end = await wait_ended(again, over.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 5)
    end = await wait_ended(again, lost.id)
    assert end.reason is EndReason.SUPERVISOR_LOST

    async def given_up() -> bool:
        return await again.observe(blocked.id) is None

    await until(given_up, "the run that never began to be given up")
    broken.call("scancel", other)
    await again.submit(blocked)
    assert (await wait_ended(again, blocked.id)).exit_code == 0
    assert sorted((await whole_log(again, blocked.id)).split()) == [b"mine", b"mine"]


async def test_a_node_dies_under_a_job(broken: SlurmLab, make_engine: MakeEngine) -> None:
    engine = await make_engine(settings_of(broken))
    run = run_of("echo begun; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    job = engine._active[run.id].job
    assert job is not None
    name = broken.call("squeue", "-h", "-j", str(job.id), "-o", "%N").strip()
    broken.node(name).crash()
    assert await running(engine, run.id), "a node that does not answer may yet come back"
    # What slurmctld does by itself after SlurmdTimeout, and an administrator who does not want to wait for it.
    broken.call("scontrol", "update", f"nodename={name}", "state=down", "reason=died")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert end.exit_code is None


class Impostor:
    """A `squeue` that can be told to lie."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.answer = folder / "answer"
        script = folder / "squeue"
        script.write_text(
            f'#!/bin/sh\n[ -e {self.answer} ] || exec /usr/bin/squeue "$@"\n'
            f"case $(cat {self.answer}) in\n"
            "  empty) exit 0 ;;\n"
            '  heading) exec /usr/bin/squeue "$@" --jobs=999999 ;;\n'
            "  *) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;\n"
            "esac\n"
        )
        script.chmod(0o755)


@pytest.mark.parametrize("lie", ["empty", "heading", "error"])
async def test_an_empty_answer_is_not_an_answer(
    lie: str, settings: SlurmSettings, make_engine: MakeEngine, tmp_path: Path
) -> None:
    impostor = Impostor(tmp_path / "bin")
    engine = await make_engine(replace(settings, path=str(impostor.folder)))
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 3")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    impostor.answer.write_text(lie)
    asked = engine._budget.calls

    async def several() -> bool:
        engine._watcher.nudge()
        return engine._budget.calls > asked + 8

    await until(several, "some questions to be asked in vain")
    assert await running(engine, run.id)
    impostor.answer.unlink()
    (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
    assert (await wait_ended(engine, run.id)).exit_code == 3


async def test_slurmrestd_is_away(broken: SlurmLab, make_engine: MakeEngine) -> None:
    rest = RestSettings(url=broken.place.rest_url, key_file=broken.place.jwt_key)
    engine = await make_engine(replace(settings_of(broken), transport="REST", rest=rest))
    run = run_of("echo begun; sleep 2")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    await asyncio.to_thread(broken.stop_rest)
    late = run_of("echo late")
    with pytest.raises(SiteUnavailable):
        await engine.submit(late)
    assert await running(engine, run.id)
    await asyncio.to_thread(broken.start_rest)
    await asyncio.to_thread(broken._wait_rest)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    await engine.submit(late)
    assert (await wait_ended(engine, late.id)).exit_code == 0
    assert len(jobs_of(broken, late.id)) == 1


async def test_ssh_is_cut_under_a_log_and_under_a_submission(
    lab: SlurmLab, login: LoginNode, make_engine: MakeEngine, tmp_path: Path
) -> None:
    slow = Path(tempfile.mkdtemp(prefix="isl-"))
    slow.chmod(0o755)
    (slow / "sbatch").write_text('#!/bin/sh\n/usr/bin/sbatch "$@" || exit\ntouch %s/sent\nsleep 1000\n' % slow)  # noqa: UP031
    (slow / "sbatch").chmod(0o755)
    slow.chmod(0o777)
    try:
        base = ssh_settings(lab, login, service=SSH_USER)
        engine = await make_engine(base)
        run = run_of("echo begun; until test -e go; do sleep 0.1; done; echo done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"begun\n")
        waiting = asyncio.create_task(engine.wait_log(run.id, Stream.STDOUT, 6, 60))
        await asyncio.to_thread(login.drop)
        (Path(base.folder) / "runs" / run.id / "work" / "go").touch()
        await waiting
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"begun\ndone\n"

        stuck = await make_engine(replace(base, path=str(slow)))
        second = run_of("echo once")
        sending = asyncio.create_task(stuck.submit(second))
        await until(lambda: asyncio.sleep(0, (slow / "sent").exists()), "the job to be sent")
        await asyncio.to_thread(login.drop)
        with pytest.raises(SiteUnavailable):
            await sending
        await stuck.submit(second)
        assert (await wait_ended(stuck, second.id)).exit_code == 0
        assert len(jobs_of(lab, second.id)) == 1
    finally:
        processes.kill_all(lambda: _sleeping(slow))
        shutil.rmtree(slow)


def _sleeping(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
