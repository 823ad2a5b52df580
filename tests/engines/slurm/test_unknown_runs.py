"""Runs that have begun and that Slurm does not know, as after a kill of slurmctld: not known is not gone."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, RunState
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.observing import liveness, lost_runs
from isthmus.engines.slurm.observing.liveness import Pulse, rest_of
from isthmus.engines.slurm.observing.snapshots import JobSnapshot
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.engines import until, wait_ended, wait_log_has

from .conftest import USER, MakeEngine
from .test_exactly_once import jobs_of, run_of

pytestmark = [pytest.mark.anyio]
LOOKS = 12


class Forgetful:
    """A slurmctld that has no jobs, and answers."""

    def __init__(self, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("jobs", "some"):
            monkeypatch.setattr(engine._transport, name, self.none)
        monkeypatch.setattr(engine._transport, "job", self.nothing)

    async def none(self, *asked: object) -> list[SlurmJob]:
        del asked
        return []

    async def nothing(self, number: int) -> None:
        del number


async def look(engine: SlurmEngine, times: int = LOOKS) -> None:
    for _ in range(times):
        await engine._digest(JobSnapshot(time.monotonic()))


@pytest.mark.real
async def test_a_run_that_slurm_forgot_ends_as_it_says(
    lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, when nobody has seen it running."""
    engine = await make_engine()
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 3")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    Forgetful(engine, monkeypatch)
    await look(engine)
    seen = await engine.observe(run.id)
    assert seen is not None
    assert seen.state in (RunState.QUEUED, RunState.RUNNING)
    await engine.close()
    with monkeypatch.context() as patch:
        patch.setattr("isthmus.engines.slurm.transports.command_line.CommandLine.jobs", Forgetful.none)
        patch.setattr("isthmus.engines.slurm.transports.command_line.CommandLine.some", Forgetful.none)
        patch.setattr("isthmus.engines.slurm.transports.command_line.CommandLine.job", Forgetful.nothing)
        again = await make_engine()
        await look(again)
        seen = await again.observe(run.id)
        assert seen is not None, "None says that the site has no such run"
        assert (seen.state, seen.engine_id) == (RunState.UNKNOWN, jobs_of(lab, run.id)[0])
        (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
        end = await wait_ended(again, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)


@pytest.mark.real
async def test_one_that_is_silent_is_lost_until_it_leaves_word(
    lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 1.0)
    engine = await make_engine()
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; kill -9 0")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    (number,) = jobs_of(lab, run.id)
    Forgetful(engine, monkeypatch)
    (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.SUPERVISOR_LOST
    await engine.close()
    monkeypatch.setattr(lost_runs, "PAUSE", 0.1)
    again = await make_engine()
    word = Path(settings.folder) / "runs" / run.id / "ended"
    word.write_text(f"job={number}\ncode=0\nstart=100\nend=101\n")
    shutil.chown(word, USER)

    async def heard() -> bool:
        seen = await again.observe(run.id)
        return seen is not None and (seen.reason, seen.exit_code) == (EndReason.COMPLETED, 0)

    await until(heard, "its word to be heard")
    assert not (Path(settings.folder) / "active" / run.id).exists()


@pytest.mark.real
async def test_the_end_of_a_job_that_did_nothing_is_not_that_of_the_run(
    lab: SlurmLab, settings: SlurmSettings, engine: SlurmEngine
) -> None:
    """Slurm lost a job that was about to begin; another was sent, which ends at once, while the first runs."""
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 3")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    folder = Path(settings.folder) / "runs" / run.id
    (number,) = jobs_of(lab, run.id)
    (folder / "begun").write_text((folder / "begun").read_text().replace(number, "99999", 1))
    known = engine._active[run.id]
    assert known.job is not None
    for _ in range(LOOKS):
        known.job = SlurmJob(int(number), ("COMPLETED",), user=known.record.user, exit_code=0)
        known.first_look = 1.0  # long ago
        await engine._settler.settle([known], JobSnapshot(time.monotonic()))
        assert known.record.final is None, "what runs has not ended"
    (folder / "work" / "go").touch()
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)


def test_silence_is_measured_by_the_journals_own_pace() -> None:
    assert rest_of(b"cut\n1763258400.125 1 2\n1763258415.125 1 2\n") == 15
    assert rest_of(b"") == rest_of(b"1.0 x\n") == rest_of(b"cut\nnan x\ninf y\n") == rest_of(b"cut\n9 x\n1 y\n") == 0
    assert rest_of(b"cut\n1 x\n99999999 y\n") == liveness.LONGEST_REST
    pulse = Pulse((10, 0, 0), 100.0, 15.0)
    assert not pulse.quiet(140.0, 10.0)
    assert pulse.quiet(145.0, 10.0)
    assert not Pulse().quiet(1e9, 0.0), "what was never looked at is not known to be silent"
