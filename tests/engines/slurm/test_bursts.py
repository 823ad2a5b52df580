"""While runs are being sent by the hundred: what is told at once, and what waits until they are sent."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.observing import snapshots
from isthmus.engines.slurm.observing.settling import KnownRun
from isthmus.engines.slurm.observing.snapshots import LONGEST_BURST, STILL_SENDING, JobSnapshot, JobWatcher
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.engines.slurm.transports.base import Budget

pytestmark = pytest.mark.anyio
WAITS, RUNS = "0123456789abcdef.0", "fedcba9876543210.0"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(snapshots, "time", SimpleNamespace(monotonic=lambda: self.now))


def job_of(run_id: str, number: int, state: str, reason: str = "") -> SlurmJob:
    return SlurmJob(number, (state,), reason, comment=f"isthmus:{run_id}")


@pytest.fixture
def engine() -> SlurmEngine:
    nothing = cast(Any, SimpleNamespace())
    engine = SlurmEngine(SlurmSettings("/nowhere"), nothing, nothing, Budget(1, 1), nothing)
    for number, run_id in enumerate((WAITS, RUNS), start=1):
        known = engine._active[run_id] = KnownRun(RunRecord(run_id, "ada", 0.0, number, False, 1000, {}))
        known.adopt(job_of(run_id, number, "PENDING"))
    return engine


async def digested(engine: SlurmEngine, *jobs: SlurmJob) -> set[str]:
    """What is told of a picture with these jobs."""
    reported = set[str]()
    engine._notify = reported.update  # type: ignore[method-assign]
    await engine._digest(JobSnapshot(1e9, jobs, {cast(str, job.run_id): [job] for job in jobs}))
    return reported


async def test_why_runs_wait_is_told_after_the_burst_and_their_starts_at_once(
    engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    waits, runs = job_of(WAITS, 1, "PENDING", "Priority"), job_of(RUNS, 2, "RUNNING")
    engine._watcher.sending()
    assert await digested(engine, waits, runs) == {RUNS}
    assert await digested(engine, waits, runs) == set()
    clock.now += STILL_SENDING
    assert await digested(engine, waits, runs) == {WAITS}
    assert await digested(engine, waits, runs) == set()


async def test_a_run_that_starts_while_it_is_untold_is_told_at_once(
    engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    other, waits = job_of(RUNS, 2, "PENDING"), job_of(WAITS, 1, "PENDING", "Priority")
    engine._watcher.sending()
    assert await digested(engine, waits, other) == set()
    assert await digested(engine, replace(waits, states=("RUNNING",)), other) == {WAITS}


def test_a_burst_ends_when_nothing_is_sent_or_when_it_lasts_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    watcher = JobWatcher(cast(Any, None), 1.0, cast(Any, None), cast(Any, None))
    assert not watcher.in_burst
    watcher.sending()
    assert watcher.in_burst
    clock.now += STILL_SENDING
    assert not watcher.in_burst
    begin = clock.now = clock.now + 1
    while clock.now < begin + LONGEST_BURST:
        watcher.sending()
        assert watcher.in_burst
        clock.now += STILL_SENDING / 2
    watcher.sending()
    assert not watcher.in_burst
