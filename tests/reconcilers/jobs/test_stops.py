"""What becomes of an attempt that was stopped for another job: pure steps of the lifecycle."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.reconcilers.jobs import lifecycle
from isthmus.reconcilers.placement.planning import is_news
from isthmus.reconcilers.placement.profiling import merged
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job, Outputs, Try
from isthmus.resources.profiles import POINTS_KEPT, RUNS_KEPT, ProfileSpec
from isthmus.resources.work.plans import PlanStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEPT = Outputs(tree="sha256:" + "0" * 64, bytes=3, count=1)


def option(**more: Any) -> dict[str, Any]:
    base = {"site": "a", "startsAt": "2026-03-01T12:00:00Z", "endsAt": "2026-03-01T12:10:00Z", "seconds": 600.0}
    return {**base, "uncertainty": 0.1, "source": "Manifest", "cost": 1.0, **more}


def plan(**chosen: Any) -> PlanStatus:
    reported = {"decidedAt": "2026-03-01T12:00:00Z", "message": "so it is", "chosen": option(**chosen)}
    return PlanStatus.model_validate(reported)


def running(**spec: Any) -> Job:
    body = {"command": ["true"], "restartable": {"checkpoint": ["state/*"]}, **spec}
    job = Job.model_validate({"metadata": {"name": "j", "uid": "u"}, "spec": body, "status": {"phase": "Running"}})
    job.status.site, job.status.plan = "a", plan()
    return job


def ended(reason: EndReason, exit_code: int | None = None, elapsed: float = 300.0) -> Observation:
    usage = RunUsage(elapsed_seconds=elapsed)
    return Observation(RunState.ENDED, reason=reason, exit_code=exit_code, usage=usage)


def stopped(job: Job) -> Job:
    job.status = lifecycle.stopping(job, "stopped for another", NOW)
    return job


def test_a_stopped_job_waits_as_its_next_try_with_what_it_kept() -> None:
    job = stopped(running())
    assert job.status.phase == "Running"
    status = lifecycle.ended(job, ended(EndReason.CANCELLED), None, NOW, checkpoint=KEPT)
    assert (status.phase, status.attempt, status.reason, status.preemption) == ("Pending", 1, "Preempted", None)
    assert (status.checkpoint, status.progress, status.retry_at) == (KEPT, 0.5, None)
    assert [(past.attempt, past.reason) for past in status.tries or ()] == [(0, "Preempted")]


def test_progress_adds_up_and_is_never_all_of_it() -> None:
    job = stopped(running())
    job.status.progress = 0.5
    status = lifecycle.ended(job, ended(EndReason.CANCELLED, elapsed=1e6), None, NOW, checkpoint=KEPT)
    assert status.progress == pytest.approx(0.975)


def test_who_kept_nothing_has_made_no_progress() -> None:
    status = lifecycle.ended(stopped(running(restartable={})), ended(EndReason.CANCELLED), None, NOW)
    assert (status.phase, status.progress, status.checkpoint) == ("Pending", None, None)


def test_a_job_that_ended_by_itself_before_it_was_stopped_has_ended() -> None:
    for code, phase in ((0, "Succeeded"), (3, "Failed")):
        assert lifecycle.ended(stopped(running()), ended(EndReason.COMPLETED, code), None, NOW).phase == phase


def test_a_cancel_goes_before_a_stop() -> None:
    job = stopped(running(intent="Cancel"))
    assert lifecycle.ended(job, ended(EndReason.CANCELLED), None, NOW).phase == "Cancelled"


def test_a_cancel_by_somebody_else_is_no_stop() -> None:
    assert lifecycle.ended(running(), ended(EndReason.CANCELLED), None, NOW).phase == "Cancelled"


@pytest.mark.parametrize("reason", [EndReason.NODE_LOST, EndReason.PREEMPTED])
def test_a_machine_that_goes_away_costs_a_restartable_job_no_retry(reason: EndReason) -> None:
    assert lifecycle.ended(running(), ended(reason), None, NOW).phase == "Pending"
    assert lifecycle.ended(running(restartable=None), ended(reason), None, NOW).phase == "Failed"


def test_stops_do_not_use_up_retries_and_have_an_end() -> None:
    job = running(retries={"limit": 1})
    for _ in range(3):
        job.status = lifecycle.ended(stopped(job), ended(EndReason.CANCELLED), None, NOW)
        job.status.phase = JobPhase.RUNNING
    failed = lifecycle.ended(job, ended(EndReason.COMPLETED, 1), None, NOW)
    assert (failed.phase, failed.reason, failed.attempt) == ("Pending", "BackingOff", 4)
    assert "try 1 of 2" in (failed.message or "")
    failed.phase = JobPhase.RUNNING
    job.status = failed
    assert lifecycle.ended(job, ended(EndReason.COMPLETED, 1), None, NOW).phase == "Failed"
    lost = running()
    lost.status.attempt = lifecycle.MOST_STOPS
    lost.status.tries = [Try(attempt=n, reason="NodeLost") for n in range(lifecycle.MOST_STOPS)]
    assert lifecycle.ended(lost, ended(EndReason.NODE_LOST), None, NOW).phase == "Failed"


def test_only_what_matters_is_written_again() -> None:
    assert not is_news(plan(), plan(startsAt="2026-03-01T12:00:20Z"))
    assert is_news(plan(), plan(startsAt="2026-03-01T12:09:00Z"))
    assert is_news(plan(), plan(site="b"))
    assert is_news(None, plan())


def test_a_profile_stays_small() -> None:
    spec = ProfileSpec()
    for number in range(POINTS_KEPT + 5):
        spec = merged(spec, {("gpu", number + 1): [1.0] * (RUNS_KEPT + 3)}, "2026-03-01T12:00:00Z")
    assert len(spec.points) == POINTS_KEPT
    assert {len(point.seconds) for point in spec.points} == {RUNS_KEPT}
    assert spec.points[-1].count == POINTS_KEPT + 5
