"""Jobs, from accepted to ended: the phases they go through, retries, deadlines, holds, cancels and deletion."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus.engines.base import EndReason, RunState
from isthmus.resources.frame.states import JOB_TRANSITIONS, JobPhase
from isthmus.resources.jobs import RUN_FINALIZER
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.planes import Plane, running_plane, with_plane
from isthmus.testing.virtual_time import on_virtual_time

OPEN = Outcome(after=None)


def failing(code: int = 1, **more: Any) -> Outcome:
    return Outcome(exit_code=code, **more)


# The table of phases, walked

WALKS: list[tuple[str, bool, Outcome, dict[str, Any], list[str]]] = [
    ("ends at once", False, Outcome(), {}, ["Pending", "Placed", "Running", "Succeeded"]),
    ("runs", False, Outcome(after=5.0), {}, ["Pending", "Placed", "Running", "Succeeded"]),
    ("fails", False, failing(after=5.0), {}, ["Pending", "Placed", "Running", "Failed"]),
    ("keeps files", False, Outcome(after=5.0, files={"a": b"1"}), {"outputs": ["a"]},
     ["Pending", "Placed", "Running", "Finishing", "Succeeded"]),
    ("keeps files of a failure", False, failing(after=5.0, files={"a": b"1"}), {"outputs": ["a"]},
     ["Pending", "Placed", "Running", "Finishing", "Failed"]),
    ("is tried again", False, failing(after=5.0), {"retries": {"limit": 1}},
     ["Pending", "Placed", "Running", "Pending", "Placed", "Running", "Failed"]),
    ("lost its node", False, Outcome(after=5.0, exit_code=None, reason=EndReason.NODE_LOST), {},
     ["Pending", "Placed", "Running", "Failed"]),
    ("ran out of time", False, Outcome(after=5.0, exit_code=None, reason=EndReason.TIME_LIMIT), {},
     ["Pending", "Placed", "Running", "Failed"]),
    ("was cancelled at its site", False, Outcome(after=5.0, exit_code=None, reason=EndReason.CANCELLED), {},
     ["Pending", "Placed", "Running", "Cancelled"]),
    ("never began", False, Outcome(after=5.0, exit_code=None, reason=EndReason.START_FAILED), {"outputs": ["a"]},
     ["Pending", "Placed", "Running", "Failed"]),
    ("waits in a queue", True, Outcome(after=5.0), {}, ["Pending", "Placed", "Queued", "Running", "Succeeded"]),
]  # fmt: skip


@pytest.mark.parametrize(("queued", "outcome", "spec", "path"), [w[1:] for w in WALKS], ids=[w[0] for w in WALKS])
def test_phases_are_walked_as_the_table_says(
    tmp_path: Path, queued: bool, outcome: Outcome, spec: dict[str, Any], path: list[str]
) -> None:
    async def story() -> None:
        async with running_plane(tmp_path) as it:
            it.queues = queued
            it.machine.outcome = lambda _: outcome
            await it.submit("job", **spec)
            if queued:
                it.machine.start((await it.phase("job", "Queued")).run_id)
            await it.ended("job")
            await it.until(
                lambda: asyncio.sleep(0, it.path("job")[-1] == path[-1])
            )  # written, and noted a moment later
            assert it.path("job") == path
            assert max(it.machine.starts.values()) == 1

    for before, after in pairwise(path):
        assert JobPhase(after) in JOB_TRANSITIONS[JobPhase(before)]
    on_virtual_time(story())


@with_plane()
async def test_an_engine_is_told_who_placed_a_run(it: Plane) -> None:
    """What another control plane placed, it may still be about to submit."""
    await it.submit("ours")
    await it.ended("ours")
    it.machine.faults.unavailable = "not now"
    await it.submit("theirs")
    await it.phase("theirs", "Placed")
    await it.stop()
    it.machine.faults.unavailable = ""
    it.start()
    await it.all_ended()
    placed_here = {run.run.job: run.run.placed_here for run in it.machine.runs.values()}
    assert placed_here == {"ours": True, "theirs": False}


@with_plane()
async def test_the_site_and_the_finalizer_are_written_before_anything_starts(it: Plane) -> None:
    it.machine.faults.unavailable = "not now"
    await it.submit("job")
    it.machine.faults.unavailable = ""
    job = await it.ended("job")
    placed = [phase for key, phase in it.store.updates if key.name == "job"]
    assert placed.index("Placed") < placed.index("Succeeded")
    assert RUN_FINALIZER in (job.metadata.finalizers or ())
    assert job.status.site == "fake"


# Retries


@with_plane()
async def test_the_wait_before_each_retry_doubles_up_to_its_limit(it: Plane) -> None:
    it.machine.outcome = lambda _: failing()
    await it.submit("job", retries={"limit": 4, "backoff": "10s", "maxBackoff": "30s"})
    ended = await it.ended("job")
    assert (ended.status.phase, ended.status.attempt) == ("Failed", 4)
    began = [parse_timestamp(timestamp(run.seen.started_at)) for run in it.machine.runs.values() if run.seen.started_at]
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(sorted(began))]
    for pause, least in zip(pauses, (10, 20, 30, 30), strict=True):
        assert least - 1 <= pause <= least + 5
    assert [past.attempt for past in ended.status.tries or ()] == [0, 1, 2, 3]


@with_plane()
async def test_only_the_exit_codes_that_were_named_are_tried_again(it: Plane) -> None:
    it.machine.outcome = lambda run: failing(75 if run.job == "again" else 1)
    for name in ("again", "once"):
        await it.submit(name, retries={"limit": 2, "backoff": "1s", "exitCodes": [75]})
    assert (await it.ended("again")).status.attempt == 2
    assert (await it.ended("once")).status.attempt == 0


@with_plane()
async def test_a_retry_that_succeeds_ends_the_job(it: Plane) -> None:
    it.machine.outcome = lambda run: failing() if run.id.endswith(".0") else Outcome()
    await it.submit("job", retries={"limit": 5, "backoff": "1h", "maxBackoff": "2h"})
    waiting = await it.waits("job", "BackingOff")
    assert waiting.status.retry_at
    assert (await it.ended("job", seconds=7300)).status.phase == "Succeeded"


@with_plane()
async def test_a_job_that_backs_off_can_be_held_and_cancelled(it: Plane) -> None:
    it.machine.outcome = lambda _: failing()
    await it.submit("job", retries={"limit": 5, "backoff": "1h", "maxBackoff": "1h"})
    await it.waits("job", "BackingOff")
    await it.change("job", intent="Hold")
    await it.waits("job", "Held", seconds=30)
    await it.change("job", intent="Cancel")
    assert (await it.ended("job", seconds=30)).status.phase == "Cancelled"


# Deadlines


@with_plane(cpus=1)
async def test_a_deadline_that_passes_is_marked_whether_the_job_waits_or_runs(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    due = timestamp(it.now() + timedelta(minutes=5))
    await it.submit("runs", deadline=due)
    await it.phase("runs", "Running")
    await it.submit("waits", deadline=due)
    await asyncio.sleep(600)
    for name in ("runs", "waits"):
        job = await it.job(name)
        assert job is not None
        assert [c.type for c in job.status.conditions].count("DeadlineMissed") == 1
        assert not job.status.phase.terminal, "it goes on all the same"


# Holds and cancels


@with_plane()
async def test_a_held_job_does_not_start_until_it_is_released(it: Plane) -> None:
    await it.submit("job", intent="Hold")
    await it.waits("job", "Held")
    await asyncio.sleep(3600)
    assert not it.machine.runs
    await it.change("job", intent="Run")
    assert (await it.ended("job")).status.phase == "Succeeded"


@with_plane(cpus=1)
async def test_a_job_that_waits_for_room_can_be_held(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("first")
    first = await it.phase("first", "Running")
    await it.submit("second")
    await it.waits("second", "InsufficientRoom")
    await it.change("second", intent="Hold")
    await it.waits("second", "Held")
    it.machine.end(first.run_id)
    await it.ended("first")
    await asyncio.sleep(60)
    assert len(it.machine.runs) == 1


@with_plane()
async def test_a_job_is_cancelled_before_it_starts_without_a_run(it: Plane) -> None:
    await it.submit("job", intent="Hold")
    await it.waits("job", "Held")
    await it.change("job", intent="Cancel")
    ended = await it.ended("job")
    assert (ended.status.phase, ended.status.reason) == ("Cancelled", "Cancelled")
    assert not it.machine.runs


@with_plane()
async def test_a_running_job_is_cancelled_at_its_site(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("job", retries={"limit": 3})
    running = await it.phase("job", "Running")
    await it.change("job", intent="Cancel")
    assert (await it.ended("job")).status.phase == "Cancelled"
    assert it.machine.cancels[running.run_id] == 1
    assert len(it.machine.runs) == 1, "a cancel is no failure"


@with_plane()
async def test_a_cancel_reaches_a_site_that_was_away(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("job")
    await it.phase("job", "Running")
    it.machine.faults.unavailable = "away"
    await it.change("job", intent="Cancel")
    await asyncio.sleep(300)
    job = await it.job("job")
    assert job is not None
    assert job.status.phase == "Running", "not known to have ended"
    it.machine.faults.unavailable = ""
    assert (await it.ended("job")).status.phase == "Cancelled"


# Deletion


@with_plane()
async def test_a_running_job_that_is_deleted_ends_before_it_goes(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("job")
    await it.phase("job", "Running")
    await it.delete("job")
    await it.gone("job")
    assert not it.machine.runs, "nothing is left of it at the site"


@with_plane()
async def test_a_deleted_job_stays_while_its_site_does_not_answer(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("job")
    running = await it.phase("job", "Running")
    it.machine.faults.unavailable = "away"
    await it.delete("job")
    await asyncio.sleep(3600)
    assert await it.job("job") is not None
    assert it.machine.runs[running.run_id].seen.state is RunState.RUNNING
    it.machine.faults.unavailable = ""
    await it.gone("job")
    assert not it.machine.runs


@with_plane()
async def test_every_attempt_of_a_deleted_job_is_forgotten_by_its_site(it: Plane) -> None:
    it.machine.outcome = lambda _: failing()
    await it.submit("job", retries={"limit": 2, "backoff": "1s"})
    await it.ended("job")
    assert len(it.machine.runs) == 3
    await it.delete("job")
    await it.gone("job")
    assert not it.machine.runs


@with_plane()
async def test_a_job_that_never_had_a_site_goes_at_once(it: Plane) -> None:
    await it.submit("job", intent="Hold")
    await it.waits("job", "Held")
    await it.delete("job")
    await it.gone("job", seconds=10)


@with_plane()
async def test_a_finished_job_goes_after_its_time(it: Plane) -> None:
    await it.submit("job", ttlAfterFinished="2h")
    await it.ended("job")
    await asyncio.sleep(7000)
    assert await it.job("job") is not None
    await it.gone("job", seconds=300)


# Failures around it


@with_plane()
async def test_a_site_that_refuses_ends_the_job_and_says_why(it: Plane) -> None:
    it.machine.faults.refuse = "no such partition"
    await it.submit("job", retries={"limit": 3})
    ended = await it.ended("job")
    assert (ended.status.phase, ended.status.reason) == ("Failed", "EngineRefused")
    assert "no such partition" in (ended.status.message or "")


@with_plane()
async def test_a_reconciler_without_the_lead_does_nothing(it: Plane) -> None:
    it.leadership.leads = False
    await it.submit("job")
    await asyncio.sleep(600)
    assert it.path("job") == ["Pending"]
    assert not it.machine.runs
    it.leadership.leads = True
    assert (await it.ended("job")).status.phase == "Succeeded"


@with_plane()
async def test_what_was_begun_is_found_by_the_next_term(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=100.0)
    await it.submit("job")
    await it.phase("job", "Running")
    await it.stop()
    await asyncio.sleep(200)  # it ends while nobody looks
    it.start()
    assert (await it.ended("job")).status.phase == "Succeeded"
    assert list(it.machine.starts.values()) == [1]
