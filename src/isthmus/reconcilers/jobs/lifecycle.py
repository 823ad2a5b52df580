"""How a job's status moves on: from a job and what was seen to its next status. Pure.

Every step is checked against the transition table. Time is an argument.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import format_duration, parse_duration
from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import JOB_TRANSITIONS, JobPhase, check_transition
from isthmus.resources.jobs import IMAGE_RESOLVED, Intent, Job, JobStatus, Outputs, StartRange, Try, Usage
from isthmus.resources.work.plans import DeviceChosen, PlanStatus, Preemption

MOST_STOPS = 32
"""How many times a restartable job goes on after it was stopped; then it counts as failed."""
MOST_DONE = 0.95
"""A stopped job was not done, whatever its profile said."""
_STOPPED = frozenset({"Preempted", "NodeLost"})
OF_ONE_ATTEMPT = (
    "reason", "message", "site", "site_message", "engine_id", "devices", "chosen", "price_per_hour", "plan",
    "preemption", "estimated_start", "placed_at", "started_at", "finished_at", "retry_at", "exit_code", "signal",
    "usage", "outputs", "reported",
)  # fmt: skip
"""Fields of the status that speak of one attempt: the next one begins without them. All others stay."""
CONDITIONS_OF_ONE_ATTEMPT = frozenset({"Started"})


def waiting(job: Job, reason: str, message: str) -> JobStatus:
    """Still pending, and why."""
    return job.status.model_copy(update={"reason": reason, "message": message})


def resolved(job: Job, digest: str) -> JobStatus:
    """It is known which bytes its image is."""
    return job.status.model_copy(update={"image": digest, "reason": None, "message": None})


def left_to_site(job: Job, message: str, now: datetime) -> JobStatus:
    """Which bytes its image is will be found out where it runs."""
    condition = Condition(type=IMAGE_RESOLVED, status=ConditionStatus.FALSE, reason="LeftToSite", message=message)
    conditions = set_condition(job.status.conditions, condition, timestamp(now))
    return job.status.model_copy(update={"conditions": conditions, "reason": None, "message": None})


def planned(job: Job, reason: str, plan: PlanStatus) -> JobStatus:
    """Still pending; when and where it is expected to run."""
    return job.status.model_copy(update={"reason": reason, "message": plan.message, "plan": plan})


def placed(
    job: Job,
    site: str,
    now: datetime,
    *,
    why: str | None = None,
    chosen: DeviceChosen | None = None,
    plan: PlanStatus | None = None,
) -> JobStatus:
    """A site is chosen, and for a job with a deadline its devices."""
    return _to(
        job,
        JobPhase.PLACED,
        reason=None,
        message=None,
        site=site,
        site_message=why,
        chosen=chosen,
        plan=plan,
        submitted_at=job.status.submitted_at or job.metadata.creation_timestamp,
        placed_at=timestamp(now),
        retry_at=None,
    )


def going_on(job: Job, seen: Observation) -> JobStatus:
    """The engine has it: queued or running."""
    status = _to(
        job,
        JobPhase.RUNNING if seen.state is RunState.RUNNING else JobPhase.QUEUED,
        reason="Held" if seen.held else None,
        message=seen.message or None,
        engine_id=seen.engine_id or job.status.engine_id,
        estimated_start=None,
    )
    if seen.start_between is not None:
        earliest, latest = seen.start_between
        status.estimated_start = StartRange(earliest=timestamp(earliest), latest=timestamp(latest))
    if seen.devices:
        status.devices = {name: list(units) for name, units in seen.devices.items()}
    status.image = status.image or seen.image
    if seen.started_at:
        status.started_at = timestamp(seen.started_at)
        status.conditions = set_condition(
            status.conditions, Condition(type="Started", status=ConditionStatus.TRUE), status.started_at
        )
    return status


def stopping(job: Job, message: str, now: datetime) -> JobStatus:
    """The intention to stop a running job for another one; written before the engine is asked."""
    status = job.status.model_copy()
    status.preemption = Preemption(asked_at=timestamp(now), message=message)
    status.reason, status.message = "Preempting", message
    return status


def goes_on(job: Job, seen: Observation) -> bool:
    """Whether the attempt that ended goes on as another one: it was stopped for others, or its machine went away."""
    if job.spec.intent is Intent.CANCEL or job.metadata.deletion_timestamp:
        return False
    if job.status.preemption is not None and seen.reason is EndReason.CANCELLED:
        return True
    lost = seen.reason in (EndReason.PREEMPTED, EndReason.NODE_LOST)
    return lost and job.spec.restartable is not None and _stops(job) < MOST_STOPS


def _stops(job: Job) -> int:
    """Tries that were stopped and not failures: they do not count against the retries."""
    if job.spec.restartable is None:
        return 0
    return sum(past.reason in _STOPPED for past in job.status.tries or ())


def finishing(job: Job, seen: Observation) -> JobStatus:
    """Its processes ended; outputs are being collected."""
    status = _to(job, JobPhase.FINISHING)
    return _reported(status, seen)


def ended(
    job: Job,
    seen: Observation,
    outputs: Outputs | None,
    now: datetime,
    reported: dict[str, float] | None = None,
    *,
    checkpoint: Outputs | None = None,
) -> JobStatus:
    """The attempt is over: the job's end, or the wait for its next attempt."""
    if goes_on(job, seen):
        return _next_stint(job, seen, checkpoint, now)
    cancelled = seen.reason is EndReason.CANCELLED or job.spec.intent is Intent.CANCEL
    if seen.exit_code == 0 and seen.reason in (EndReason.COMPLETED, None):
        phase, reason, message = JobPhase.SUCCEEDED, None, seen.message or None
    elif cancelled:
        text = "cancelled while it ran" if seen.started_at else "cancelled before it started"
        phase, reason, message = JobPhase.CANCELLED, "Cancelled", seen.message or text
    else:
        reason, message = _failure(seen)
        if _try_again(job, seen):
            return _next_try(job, seen, reason, message, now)
        phase = JobPhase.FAILED
    status = _reported(_to(job, phase), seen)
    status.reason, status.message = reason, message
    if outputs is not None:
        status.outputs = outputs
    status.reported = reported
    return finished(status, now)


def corrected(job: Job, seen: Observation) -> JobStatus | None:
    """The status of a job that is over, whose engine has learned more of it since; None if there is nothing new."""
    if seen.state is not RunState.ENDED:
        return None
    if was_lost(job) and seen.reason is not EndReason.NODE_LOST:
        status = _reported(job.status.model_copy(), seen)
        how = f"with exit code {seen.exit_code}" if seen.exit_code is not None else f"({_failure(seen)[1]})"
        status.message = f"it counted as lost; it turned out later that it had ended {how}"
        return status if status != job.status else None
    if seen.usage is None:
        return None
    status = job.status.model_copy(update={"usage": usage_of(seen.usage)})
    if status.phase is JobPhase.SUCCEEDED:
        status.message = seen.message or None
    if status.reason == EndReason.SUPERVISOR_LOST and seen.reason is EndReason.COMPLETED:
        # What followed from its being lost stands: others may have acted on it. What is known now is said beside it.
        status.exit_code, status.signal = seen.exit_code, seen.signal
        how = f"was ended by {seen.signal}" if seen.signal else f"ended with exit code {seen.exit_code}"
        status.message = f"was called lost, because nothing was heard of it; it {how} all the same"
    return status if status != job.status else None


def was_lost(job: Job) -> bool:
    """Whether the job is over because nobody knew what had become of its run, and nobody knows yet."""
    status = job.status
    return status.phase is JobPhase.FAILED and status.reason == "NodeLost" and status.exit_code is None


def gave_up(job: Job, phase: JobPhase, reason: str, message: str, now: datetime) -> JobStatus:
    """The job ends without (another) run."""
    status = _to(job, phase)
    status.reason, status.message = reason, message
    return finished(status, now)


def finished(status: JobStatus, now: datetime) -> JobStatus:
    """The marks that every end carries."""
    moment = timestamp(now)
    status.finished_at = status.finished_at or moment
    status.retry_at = None
    marks = {
        "Finished": True,
        "Complete": status.phase is JobPhase.SUCCEEDED,
        "Failed": status.phase is JobPhase.FAILED,
    }
    for mark, holds in marks.items():
        if holds:
            condition = Condition(
                type=mark,
                status=ConditionStatus.TRUE,
                reason=status.reason or status.phase.value,
                message=status.message or "",
            )
            status.conditions = set_condition(status.conditions, condition, moment)
    return status


def sooner(job: Job, now: datetime) -> JobStatus | None:
    """The status of a job whose next attempt lies further away than any backoff: the clock was set back meanwhile."""
    longest = timedelta(seconds=parse_duration(job.spec.retries.max_backoff))
    if job.status.retry_at is None or parse_timestamp(job.status.retry_at) <= now + longest:
        return None
    return job.status.model_copy(update={"retry_at": timestamp(now + longest)})


def missed_deadline(job: Job, now: datetime) -> JobStatus | None:
    """The status with its mark, once the deadline has passed; None if there is nothing to mark."""
    if job.spec.deadline is None or now < parse_timestamp(job.spec.deadline):
        return None
    if any(condition.type == "DeadlineMissed" for condition in job.status.conditions):
        return None
    condition = Condition(
        type="DeadlineMissed",
        status=ConditionStatus.TRUE,
        reason="DeadlinePassed",
        message=f"the result was wanted by {job.spec.deadline}",
    )
    status = job.status.model_copy()
    status.conditions = set_condition(status.conditions, condition, timestamp(now))
    return status


def _to(job: Job, phase: JobPhase, **changes: Any) -> JobStatus:
    check_transition(JOB_TRANSITIONS, job.status.phase, phase)
    return job.status.model_copy(update={"phase": phase, "observed_generation": job.metadata.generation, **changes})


def _reported(status: JobStatus, seen: Observation) -> JobStatus:
    status.estimated_start = None
    status.engine_id = seen.engine_id or status.engine_id
    status.exit_code, status.signal = seen.exit_code, seen.signal
    if seen.devices:
        status.devices = {name: list(units) for name, units in seen.devices.items()}
    status.image = status.image or seen.image
    if seen.started_at:
        status.started_at = timestamp(seen.started_at)
        status.conditions = set_condition(
            status.conditions, Condition(type="Started", status=ConditionStatus.TRUE), status.started_at
        )
    if seen.ended_at:
        status.finished_at = timestamp(seen.ended_at)
    if seen.usage:
        status.usage = usage_of(seen.usage)
    return status


def usage_of(usage: RunUsage) -> Usage:
    """What a run used, as the status says it."""
    return Usage(
        elapsed_seconds=_rounded(usage.elapsed_seconds),
        cpu_seconds=_rounded(usage.cpu_seconds),
        peak_memory_bytes=usage.peak_memory_bytes,
        energy_joules=_rounded(usage.energy_joules),
        energy_source=usage.energy_source,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _failure(seen: Observation) -> tuple[str, str]:
    match seen.reason:
        case EndReason.TIME_LIMIT:
            return "TimeLimit", seen.message or "ended because its time limit was over; raise resources.timeLimit"
        case EndReason.OUT_OF_MEMORY:
            return (
                "OutOfMemory",
                seen.message or "ended because it used more memory than it asked for; raise resources.memory",
            )
        case EndReason.COMPLETED | None if seen.signal:
            return "Signal", f"ended by {seen.signal}"
        case EndReason.COMPLETED | None:
            return "NonZeroExit", ". ".join(filter(None, (f"ended with exit code {seen.exit_code}", seen.message)))
        case _:
            return seen.reason.value, seen.message or "the run ended and it is not known how"


def _try_again(job: Job, seen: Observation) -> bool:
    retries = job.spec.retries
    if seen.reason is EndReason.START_FAILED or job.metadata.deletion_timestamp:
        return False
    wanted = retries.exit_codes is None or seen.exit_code in retries.exit_codes
    return job.status.attempt - _stops(job) < retries.limit and wanted


def _next_try(job: Job, seen: Observation, reason: str, message: str, now: datetime) -> JobStatus:
    attempt, retries = job.status.attempt - _stops(job), job.spec.retries
    delay = min(parse_duration(retries.backoff) * 2.0**attempt, parse_duration(retries.max_backoff))
    status = _again(job, seen, reason, now)
    status.reason = "BackingOff"
    status.message = f"try {attempt + 1} of {retries.limit + 1} {message}; the next begins in {format_duration(delay)}"
    status.retry_at = timestamp(now + timedelta(seconds=delay))
    return status


def _next_stint(job: Job, seen: Observation, checkpoint: Outputs | None, now: datetime) -> JobStatus:
    """Stopped, not failed: it waits for room again, with what it kept."""
    lost = seen.reason is EndReason.NODE_LOST
    status = _again(job, seen, "NodeLost" if lost else "Preempted", now)
    status.reason = "NodeLost" if lost else "Preempted"
    text = job.status.preemption.message if job.status.preemption else seen.message or "the site ended it"
    status.message = f"{text}; it goes on when there is room"
    before, plan = job.status.progress or 0.0, job.status.plan
    if checkpoint is not None:
        status.checkpoint = checkpoint
        elapsed = (seen.usage.elapsed_seconds if seen.usage else None) or 0.0
        if plan is not None and plan.chosen is not None and plan.chosen.seconds > 0:
            status.progress = round(before + (1 - before) * min(MOST_DONE, elapsed / plan.chosen.seconds), 6)
    return status


def _again(job: Job, seen: Observation, reason: str, now: datetime) -> JobStatus:
    """Pending with the number of the next attempt; the one that is over is written down."""
    status = _reported(_to(job, JobPhase.PENDING), seen)
    over = Try(
        attempt=job.status.attempt,
        site=status.site,
        engine_id=status.engine_id,
        started_at=status.started_at,
        finished_at=status.finished_at or timestamp(now),
        reason=reason,
        exit_code=seen.exit_code,
        signal=seen.signal,
        chosen=status.chosen,
        price_per_hour=status.price_per_hour,
        usage=status.usage,
    )
    changes: dict[str, Any] = dict.fromkeys(OF_ONE_ATTEMPT)
    changes["attempt"] = job.status.attempt + 1
    changes["tries"] = [*(status.tries or []), over]
    changes["conditions"] = [known for known in status.conditions if known.type not in CONDITIONS_OF_ONE_ATTEMPT]
    return status.model_copy(update=changes)
