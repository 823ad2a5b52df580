"""A run is carried out exactly once: over crashes, lost replies, requests that arrive late, and races."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.children import Ready
from isthmus._kit.crashpoints import VARIABLE
from isthmus.engines.base import EndReason, Run, RunState
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import Accounted
from isthmus.engines.slurm.sending import as_it_is
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.errors import SiteUnavailable
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.resources.jobs import SlurmOptions
from isthmus.testing.engines import new_run_id, until, wait_ended, wait_log_has, whole_log

from .conftest import USER, MakeEngine

pytestmark = [pytest.mark.real, pytest.mark.anyio]
POINTS = [
    "SharedFiles._make_folder:mkdir",
    "SharedFiles._prepare:rename",
    "SharedFiles._create_record:link",
    "SharedFiles._create_record:unlink",
    "send:submit",
]
"""Those of a submission. All that there are, are found and tried in `test_crash_points`."""


def run_of(script: str, **fields: Any) -> Run:
    return Run(fields.pop("id", None) or new_run_id(), "t", "once", command=("/bin/sh", "-c", script), **fields)


def jobs_of(lab: SlurmLab, run_id: str) -> list[str]:
    lines = lab.call("squeue", "-h", "-t", "all", "-o", "%A %k").splitlines()
    return [line.split()[0] for line in lines if line.endswith(f"isthmus:{run_id}")]


@pytest.mark.parametrize("point", POINTS)
async def test_killed_between_any_two_steps(
    point: str, lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    run_id = new_run_id()
    words = [sys.executable, str(Path(__file__).with_name("crashing.py"))]
    words += [settings.folder, str(settings.conf), str(settings.path), USER, run_id]
    died = subprocess.run(words, env={**os.environ, VARIABLE: point}, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    engine = await make_engine()
    await engine.submit(run_of("echo once", id=run_id))
    assert (await wait_ended(engine, run_id)).exit_code == 0
    assert await whole_log(engine, run_id) == b"once\n"
    assert len(jobs_of(lab, run_id)) == 1


async def test_what_cannot_be_recorded_is_not_sent(lab: SlurmLab, settings: SlurmSettings, engine: SlurmEngine) -> None:
    records, away = Path(settings.folder, "active"), Path(settings.folder, "away")
    records.rename(away)
    run = run_of("echo once")
    with pytest.raises(SiteUnavailable, match="cannot be used"):
        await engine.submit(run)
    assert not jobs_of(lab, run.id)
    away.rename(records)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert len(jobs_of(lab, run.id)) == 1


async def test_a_lost_reply_is_looked_for(lab: SlurmLab, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine._transport.submit

    async def lossy(wanted: Submission, ready: Ready) -> int:
        await real(wanted, ready)
        raise SiteUnavailable("the reply was lost")

    monkeypatch.setattr(engine._transport, "submit", lossy)
    run = run_of("echo once")
    with pytest.raises(SiteUnavailable):
        await engine.submit(run)
    seen = await engine.submit(run)  # would lose the reply again if it were sent again
    assert seen.state in (RunState.QUEUED, RunState.RUNNING)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert await whole_log(engine, run.id) == b"once\n"
    assert len(jobs_of(lab, run.id)) == 1


async def test_a_lost_reply_is_found_by_the_next_picture_too(
    engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine._transport.submit

    async def lossy(wanted: Submission, ready: Ready) -> int:
        await real(wanted, ready)
        raise SiteUnavailable("the reply was lost")

    monkeypatch.setattr(engine._transport, "submit", lossy)
    run = run_of("echo once")
    with pytest.raises(SiteUnavailable):
        await engine.submit(run)
    engine._watcher.watch(True)
    assert (await wait_ended(engine, run.id)).exit_code == 0


async def test_a_job_that_only_the_accounting_remembers_is_sent_again(
    lab: SlurmLab, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slurmctld that was killed lost it, and slurmdbd calls it pending for ever."""
    real, run = engine._transport.submit, run_of("echo once")
    row = Accounted(999_999, ("PENDING",), work_dir=f"{engine._files.folder(run.id)}/work")

    async def nothing_sent(wanted: Submission, ready: Ready) -> int:
        await ready()
        monkeypatch.setattr(engine._transport, "submit", real)
        raise SiteUnavailable("no answer")

    async def accounting(users: Sequence[str], since: datetime) -> list[Accounted]:
        return [row]

    async def sent() -> bool:
        with contextlib.suppress(SiteUnavailable):
            await engine.submit(run)
        return bool(jobs_of(lab, run.id))

    engine._settler.facts = replace(engine._settler.facts, accounting=True)
    monkeypatch.setattr(engine._transport, "submit", nothing_sent)
    monkeypatch.setattr(engine._transport, "search_accounting", accounting)
    await until(sent, "it to be sent again", 30)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    assert await whole_log(engine, run.id) == b"once\n"
    assert len(jobs_of(lab, run.id)) == 1


async def test_a_request_that_arrives_late_does_nothing(
    lab: SlurmLab, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is stuck on its way while the second is sent: both arrive, one run is carried out."""
    real = engine._transport.submit
    stuck: list[Submission] = []

    async def delayed(wanted: Submission, ready: Ready) -> int:
        await ready()
        stuck.append(wanted)
        monkeypatch.setattr(engine._transport, "submit", real)
        raise SiteUnavailable("no answer")

    monkeypatch.setattr(engine._transport, "submit", delayed)
    run = run_of("echo once; sleep 1; exit 7")
    with pytest.raises(SiteUnavailable):
        await engine.submit(run)
    await engine.submit(run)
    await real(stuck[0])
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 7)
    jobs = jobs_of(lab, run.id)
    assert len(jobs) == 2

    async def all_over() -> bool:
        said = lab.call("squeue", "-h", "-t", "all", "-j", ",".join(jobs), "-o", "%T").split()
        return set(said) <= {"COMPLETED", "FAILED"}

    await until(all_over, "both jobs to end")
    assert await whole_log(engine, run.id) == b"once\n"


async def test_the_end_is_that_of_the_job_that_began(lab: SlurmLab, engine: SlurmEngine) -> None:
    """A duplicate begins first and the noted job does nothing: the duplicate's end counts."""
    run = run_of("echo once; sleep 2; exit 7")
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        await engine.submit(run)
        noted = engine._active[run.id].record.job
        lab.call("scontrol", "hold", str(noted))
        known = engine._active[run.id]
        await engine._send(run, known.record.user, partial(as_it_is, known))
        other = known.record.job
        known.record = known.record.sent(noted or 0)
    finally:
        lab.call("scontrol", "update", "partitionname=all", "state=up")
    assert other != noted
    await wait_log_has(engine, run.id, b"once\n")
    lab.call("scontrol", "release", str(noted))
    end = await wait_ended(engine, run.id)
    assert (end.exit_code, end.engine_id) == (7, str(other))
    assert await whole_log(engine, run.id) == b"once\n"


async def test_a_cancelled_run_that_is_still_on_its_way_does_not_begin(engine: SlurmEngine, lab: SlurmLab) -> None:
    run = run_of("echo once")
    await engine.cancel(run.id)
    seen = await engine.submit(run)
    assert (seen.state, seen.reason) == (RunState.ENDED, EndReason.CANCELLED)
    assert jobs_of(lab, run.id) == []


async def test_slurm_may_requeue_where_it_is_allowed_to(lab: SlurmLab, engine: SlurmEngine) -> None:
    script = 'echo "try ${SLURM_RESTART_COUNT:-0}"; test -n "$SLURM_RESTART_COUNT" && exit 0; exec sleep 1000'
    run = run_of(script, options=(SlurmOptions(requeue=True),))
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"try 0\n")
    job = str(engine._active[run.id].record.job)
    lab.call("scontrol", "requeue", job)

    await wait_log_has(engine, run.id, b"try 1\n")
    assert (await wait_ended(engine, run.id)).exit_code == 0


async def test_by_itself_slurm_requeues_nothing(lab: SlurmLab, engine: SlurmEngine) -> None:
    run = run_of("echo begun; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    job = str(engine._active[run.id].record.job)
    lab.call("scontrol", "requeue", job, check=False)
    assert "RUNNING" in lab.call("squeue", "-h", "-j", job, "-o", "%T")
    await engine.cancel(run.id)
    await wait_ended(engine, run.id)


async def test_where_no_link_can_be_made_nothing_is_called_done(
    lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    """What decides who begins could not be made: the run did not begin, and must not look as if it had succeeded."""
    programs = lab.place.shared / new_run_id()
    programs.mkdir()
    (programs / "ln").write_text("#!/bin/sh\nexit 1\n")
    for path in (programs, programs / "ln"):
        path.chmod(0o755)
    engine = await make_engine(path=f"{programs}:{settings.path}")
    run = run_of("echo ran")
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.START_FAILED, 127)
    assert "cannot make a link" in end.message
    assert await whole_log(engine, run.id) == b""
