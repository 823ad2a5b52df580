from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.reconcilers.jobs import lifecycle
from isthmus.reconcilers.jobs.dependencies import Other, outlook
from isthmus.reconcilers.jobs.runs import run_of
from isthmus.resources.frame.meta import Condition, ConditionStatus
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job, JobStatus

NOW = datetime(2026, 1, 31, 18, tzinfo=UTC)


def job(phase: JobPhase = JobPhase.RUNNING, attempt: int = 0, **spec: Any) -> Job:
    made = Job.model_validate(
        {
            "kind": "Job",
            "metadata": {"name": "a", "namespace": "t", "uid": "u", "generation": 1},
            "spec": {"command": ["x"], **spec},
        }
    )
    made.status = JobStatus(phase=phase, attempt=attempt, site=None if phase is JobPhase.PENDING else "here")
    return made


def ended(**fields: Any) -> Observation:
    return Observation(RunState.ENDED, **{"reason": EndReason.COMPLETED, "ended_at": NOW, **fields})


def test_exit_code_zero_is_success() -> None:
    usage = RunUsage(elapsed_seconds=1.5, energy_joules=20.0, energy_source="estimated")
    status = lifecycle.ended(job(), ended(exit_code=0, usage=usage), None, NOW)
    assert (status.phase, status.exit_code, status.reason) == (JobPhase.SUCCEEDED, 0, None)
    assert status.usage is not None
    assert status.usage.energy_source == "estimated"
    assert {c.type for c in status.conditions} == {"Finished", "Complete"}


@pytest.mark.parametrize(("started", "reported"), [(NOW, "while it ran"), (None, "before it started")])
def test_a_cancelled_job_says_whether_it_had_started(started: datetime | None, reported: str) -> None:
    seen = ended(reason=EndReason.CANCELLED, started_at=started)
    assert lifecycle.ended(job(), seen, None, NOW).message == f"cancelled {reported}"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (ended(exit_code=3), "NonZeroExit"),
        (ended(signal="SIGSEGV"), "Signal"),
        (ended(reason=EndReason.TIME_LIMIT, signal="SIGTERM"), "TimeLimit"),
        (ended(reason=EndReason.OUT_OF_MEMORY, signal="SIGKILL"), "OutOfMemory"),
        (ended(reason=EndReason.START_FAILED, message="no such program"), "StartFailed"),
        (ended(reason=EndReason.NODE_LOST), "NodeLost"),
        (ended(reason=EndReason.SUPERVISOR_LOST), "SupervisorLost"),
    ],
)
def test_every_other_end_is_a_failure_with_its_reason(seen: Observation, reason: str) -> None:
    status = lifecycle.ended(job(), seen, None, NOW)
    assert (status.phase, status.reason) == (JobPhase.FAILED, reason)
    assert status.message
    assert {c.type for c in status.conditions} == {"Finished", "Failed"}


def test_who_asked_for_the_end_gets_cancelled_and_no_further_try() -> None:
    seen = ended(reason=EndReason.CANCELLED, signal="SIGTERM")
    assert lifecycle.ended(job(retries={"limit": 3}), seen, None, NOW).phase is JobPhase.CANCELLED
    assert (
        lifecycle.ended(job(intent="Cancel", retries={"limit": 3}), ended(exit_code=1), None, NOW).phase
        is JobPhase.CANCELLED
    )


def test_a_job_that_succeeds_while_it_is_being_cancelled_has_succeeded() -> None:
    assert lifecycle.ended(job(intent="Cancel"), ended(exit_code=0), None, NOW).phase is JobPhase.SUCCEEDED


def test_a_job_that_was_called_lost_says_how_it_ended_when_that_is_known() -> None:
    """What followed from its being lost stands."""
    lost = job()
    lost.status = lifecycle.ended(lost, ended(reason=EndReason.SUPERVISOR_LOST), None, NOW)
    assert lifecycle.corrected(lost, ended(reason=EndReason.SUPERVISOR_LOST)) is None
    status = lifecycle.corrected(lost, ended(reason=EndReason.COMPLETED, exit_code=0, usage=RunUsage(1.0)))
    assert status is not None
    assert (status.phase, status.reason, status.exit_code) == (JobPhase.FAILED, "SupervisorLost", 0)
    assert status.message == "was called lost, because nothing was heard of it; it ended with exit code 0 all the same"


def test_a_failure_is_tried_again_with_growing_patience() -> None:
    retries = {"limit": 3, "backoff": "10s", "maxBackoff": "30s"}
    delays = []
    for attempt in range(3):
        status = lifecycle.ended(job(attempt=attempt, retries=retries), ended(exit_code=1), None, NOW)
        assert (status.phase, status.attempt, status.site) == (JobPhase.PENDING, attempt + 1, None)
        assert status.tries is not None
        assert (status.tries[-1].attempt, status.tries[-1].site, status.tries[-1].exit_code) == (attempt, "here", 1)
        assert status.retry_at is not None
        delays.append(datetime.fromisoformat(status.retry_at) - NOW)
    assert delays == [timedelta(seconds=s) for s in (10, 20, 30)]
    assert lifecycle.ended(job(attempt=3, retries=retries), ended(exit_code=1), None, NOW).phase is JobPhase.FAILED


def test_only_the_named_exit_codes_are_tried_again() -> None:
    retries = {"limit": 3, "exitCodes": [75]}
    assert lifecycle.ended(job(retries=retries), ended(exit_code=1), None, NOW).phase is JobPhase.FAILED
    assert lifecycle.ended(job(retries=retries), ended(exit_code=75), None, NOW).phase is JobPhase.PENDING
    assert (
        lifecycle.ended(job(retries={"limit": 3}), ended(reason=EndReason.START_FAILED), None, NOW).phase
        is JobPhase.FAILED
    )


def test_a_deadline_is_marked_once() -> None:
    late = job(deadline="2026-01-31T17:00:00Z")
    status = lifecycle.missed_deadline(late, NOW)
    assert status is not None
    late.status = status
    assert lifecycle.missed_deadline(late, NOW) is None
    assert lifecycle.missed_deadline(job(deadline="2026-01-31T19:00:00Z"), NOW) is None


def depends(condition: str, **status: Any) -> Job:
    made = job(JobPhase.PENDING, dependencies=[{"job": "b", "condition": condition}])
    made.status = made.status.model_copy(update=status)
    return made


@pytest.mark.parametrize(
    ("condition", "phase", "started", "expected"),
    [
        ("Succeeded", JobPhase.RUNNING, True, "waits"),
        ("Succeeded", JobPhase.SUCCEEDED, True, "holds"),
        ("Succeeded", JobPhase.FAILED, True, "never"),
        ("Failed", JobPhase.FAILED, True, "holds"),
        ("Failed", JobPhase.SUCCEEDED, True, "never"),
        ("Finished", JobPhase.CANCELLED, False, "holds"),
        ("Finished", JobPhase.PENDING, False, "waits"),
        ("Started", JobPhase.RUNNING, True, "holds"),
        ("Started", JobPhase.CANCELLED, False, "never"),
    ],
)
def test_dependencies(condition: str, phase: JobPhase, started: bool, expected: str) -> None:
    found = outlook(depends(condition), lambda _: Other("1", phase, started))
    assert (bool(found.waits_for), bool(found.hopeless)) == (expected == "waits", expected == "never")
    assert found.resolved[0].satisfied is (expected == "holds")


def test_a_dependency_stays_bound_to_the_job_that_first_bore_the_name() -> None:
    first = outlook(depends("Succeeded"), lambda _: Other("1", JobPhase.RUNNING, True))
    later = depends("Succeeded", dependencies=first.resolved)
    assert outlook(later, lambda _: Other("2", JobPhase.SUCCEEDED, True)).hopeless
    assert outlook(later, lambda _: None).hopeless
    done = outlook(later, lambda _: Other("1", JobPhase.SUCCEEDED, True))
    assert not outlook(depends("Succeeded", dependencies=done.resolved), lambda _: None).hopeless


def test_a_dependency_that_does_not_exist_yet_is_waited_for() -> None:
    found = outlook(depends("Succeeded"), lambda _: None)
    assert found.waits_for
    assert "does not exist yet" in found.waits_for


@given(
    st.sampled_from([JobPhase.PLACED, JobPhase.QUEUED, JobPhase.RUNNING, JobPhase.FINISHING]),
    st.sampled_from(list(EndReason)),
    st.none() | st.integers(0, 255),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["Run", "Cancel"]),
)
def test_whatever_is_seen_the_step_is_in_the_table_and_says_why(
    phase: JobPhase, reason: EndReason, code: int | None, attempt: int, limit: int, intent: str
) -> None:
    status = lifecycle.ended(
        job(phase, attempt, retries={"limit": limit}, intent=intent), ended(reason=reason, exit_code=code), None, NOW
    )
    assert status.phase.terminal or status.phase is JobPhase.PENDING
    assert status.phase is JobPhase.SUCCEEDED or status.message
    assert status.phase.terminal or status.attempt == attempt + 1 <= limit


class LaterStatus(JobStatus):
    """The status of a later version: this one has never heard of its last field."""

    of_later: str | None = None


def test_what_is_not_of_one_attempt_survives_the_next() -> None:
    """Every field that is not in the list of what is reset stays, also those that come with a later version."""
    one = job(retries={"limit": 3})
    late = Condition(type="DeadlineMissed", status=ConditionStatus.TRUE)
    started = Condition(type="Started", status=ConditionStatus.TRUE)
    values: dict[str, Any] = {name: f"kept {name}" for name in JobStatus.model_fields}
    values |= {"phase": JobPhase.RUNNING, "attempt": 0, "tries": [], "conditions": [late, started], "preemption": None}
    values |= {"plan": None, "chosen": None, "started_at": "2026-01-31T17:00:00Z", "finished_at": None}
    values |= {"price_per_hour": 1.5, "usage": None}
    one.status = LaterStatus.model_construct(**values, of_later="still here")
    after = lifecycle.ended(one, ended(exit_code=1), None, NOW)
    assert (after.phase, after.attempt) == (JobPhase.PENDING, 1)
    assert getattr(after, "of_later") == "still here"  # noqa: B009 - no field of this version
    assert [known.type for known in after.conditions] == ["DeadlineMissed"]
    changed = {"phase", "attempt", "tries", "conditions", "observed_generation", *lifecycle.OF_ONE_ATTEMPT}
    for name in JobStatus.model_fields.keys() - changed:
        assert getattr(after, name) == f"kept {name}", name
    for name in set(lifecycle.OF_ONE_ATTEMPT) - {"reason", "message", "retry_at"}:
        assert getattr(after, name) is None, name


def test_a_later_attempt_runs_the_bytes_of_the_first() -> None:
    digest = f"sha256:{'a' * 64}"
    first = job(JobPhase.PLACED, image="python:3.12")
    assert run_of(first, None).image == "python:3.12"
    running = lifecycle.going_on(first, Observation(RunState.RUNNING, image=digest))
    assert running.image == digest
    assert lifecycle.going_on(first, Observation(RunState.RUNNING)).image is None
    assert "image" not in lifecycle.OF_ONE_ATTEMPT
    first.status = running
    assert run_of(first, None).image == f"docker.io/library/python:3.12@{digest}"
    sent = job(image="oci-archive:x.tar")
    sent.status.image = digest
    assert run_of(sent, None).image == "oci-archive:x.tar"
