"""Word that jobs leave when they begin and end: a hint that makes us look, and never more."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from isthmus.engines.base import EndReason, RunState
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.files.base import MOST_NEWS, LogFile, RunFiles
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.files.shared import SharedFiles
from isthmus.engines.slurm.observing import mailbox, snapshots
from isthmus.engines.slurm.observing.mailbox import Mailbox
from isthmus.engines.slurm.observing.settling import KnownRun
from isthmus.engines.slurm.observing.snapshots import JobSnapshot, JobsWanted, JobWatcher
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.engines import until, wait_ended

from .conftest import MakeEngine
from .test_exactly_once import run_of

pytestmark = pytest.mark.anyio
RARELY = 600.0
"""Seconds between looks at all of our jobs: nothing is seen by them within a test."""


async def test_beginnings_and_ends_are_seen_though_nobody_looks_at_all_jobs(
    settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LONGEST_PAUSE", RARELY)
    engine = await make_engine(replace(settings, poll_seconds=RARELY))
    run = run_of("until test -e go; do sleep 0.1; done; exit 3")
    await engine.submit(run)

    async def begun() -> bool:
        seen = await engine.observe(run.id)
        return seen is not None and seen.state is RunState.RUNNING

    await until(begun, "the run to be seen running")
    (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)


async def test_that_a_run_ends_is_expected_for_a_moment_however_often_it_is_said() -> None:
    run_id, said, expected = run_of("true").id, asyncio.Event(), list[bool]()

    class Word:
        async def news(self) -> set[str]:
            return {run_id}

        async def sizes(self, files: Sequence[LogFile]) -> list[int]:
            return [0 for _ in files]

    class Asked:
        async def needed(self) -> None: ...

        async def some(self, wanted: JobsWanted, *, hinted: bool) -> JobSnapshot:
            return JobSnapshot(0.0, asked=frozenset(wanted.numbers), hinted=hinted)

    async def digest(_: JobSnapshot) -> None:
        expected.append(mailbox.is_ending(run_id))
        if not expected[-1]:
            said.set()

    async def never(_: KnownRun) -> None:
        raise AssertionError("Slurm does not say that it runs")

    active = {run_id: KnownRun(RunRecord(run_id, job=1))}
    mailbox = Mailbox(cast(RunFiles, Word()), cast(JobWatcher, Asked()), active, digest, never, seconds=0.02)
    assert not mailbox.is_ending(run_id)
    looking = asyncio.create_task(mailbox.run())
    await asyncio.wait_for(said.wait(), 60)
    looking.cancel()
    assert expected[0]


async def test_word_of_somebody_else_ends_nothing(settings: SlurmSettings, engine: SlurmEngine) -> None:
    run = run_of("until test -e go; do sleep 0.1; done")
    await engine.submit(run)
    news = Path(settings.folder) / "news"
    (news / run.id).touch()
    (news / "folder").mkdir()
    (news / "folder" / "file").touch()
    (news / "link").symlink_to("/etc/passwd")

    async def taken() -> bool:
        return not list(news.iterdir())

    await until(taken, "all names to be removed")
    seen = await engine.observe(run.id)
    assert seen is not None
    assert seen.state is not RunState.ENDED
    assert Path("/etc/passwd").exists()
    (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
    assert (await wait_ended(engine, run.id)).exit_code == 0


@pytest.mark.parametrize(
    "killed", [None, "RunSettler.take_its_word", "RunSettler._finish_alone", "RunSettler.end_ghost", "after it was"]
)
async def test_a_run_that_slurm_calls_running_is_taken_at_its_word(
    killed: str | None,
    lab: SlurmLab,
    settings: SlurmSettings,
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a kill of slurmctld, which forgot its end. One that only says that it ended is ended.

    Also where the control plane is killed before any of its steps: taking its word, writing it down, having Slurm end
    the job, and moving the record.
    """
    monkeypatch.setattr(mailbox, "TAKEN_AT_ITS_WORD_AFTER", 0.5)
    engine, stopped = await make_engine(), asyncio.Event()

    async def stop(*args: object, **kwargs: object) -> NoReturn:
        del args, kwargs
        stopped.set()
        await asyncio.Event().wait()
        raise AssertionError

    if killed == "after it was":
        monkeypatch.setattr(engine._files, "finish_record", stop)
    elif killed is not None:
        monkeypatch.setattr(engine._settler, killed.partition(".")[2], stop)
    news = Path(settings.folder) / "news"
    word = r'printf "job=$SLURM_JOB_ID\ncode=3\nstart=1\nend=2\n" >../ended'
    run = run_of(f"{word}; : >{news}/$ISTHMUS_RUN_ID; exec sleep 1000")
    await engine.submit(run)
    if killed is not None:
        await asyncio.wait_for(stopped.wait(), 60)
        await engine.close()
        engine = await make_engine()
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)

    async def over() -> bool:
        return (Path(settings.folder) / "over" / run.id).exists()

    await until(over, "the record to be moved")

    async def gone() -> bool:
        return not lab.call("squeue", "-h", "-t", "R", "-o", "%i", "-j", end.engine_id).strip()

    await until(gone, "Slurm to end what it has of it")


async def test_a_run_whose_word_cannot_be_left_ends_as_others_do(settings: SlurmSettings, engine: SlurmEngine) -> None:
    news = Path(settings.folder) / "news"
    news.rmdir()
    news.touch()
    run = run_of("exit 4")
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 4


async def test_a_flood_of_names_costs_so_much_and_no_more(tmp_path: Path) -> None:
    files = SharedFiles(str(tmp_path / "site"))
    await files.open()
    news = tmp_path / "site" / "news"
    assert stat.S_IMODE(news.stat().st_mode) == 0o1733, "anybody may leave word, nobody read or remove another's"
    for number in range(MOST_NEWS + 10):
        os.close(os.open(news / str(number), os.O_CREAT | os.O_WRONLY))
    assert len(await files.news()) == MOST_NEWS
    assert len(await files.news()) == 10
    assert await files.news() == set()
    await files.close()
