"""What becomes of an instance: from what is wanted and what was seen to its next status and one step. Pure.

The job of the first start of `demo` is called `demo-1`, that of the next one `demo-2`: making it again finds it made.
`status.job` is written after the job was made; a job that is named there and is no more was deleted by somebody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import format_duration, parse_duration
from isthmus.resources.frame.states import INSTANCE_TRANSITIONS, InstancePhase, JobPhase, check_transition
from isthmus.resources.instances import Instance, InstanceIntent, InstanceStatus
from isthmus.resources.jobs import Job, JobStatus
from isthmus.resources.templates import Template

MOST_FAILURES = 5
"""Starts in a row that a fault of a machine ended, after which it stays ended."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds before another start after such a fault."""
SOON = timedelta(minutes=10)
"""How long before the end of its life its owner is warned."""
USE_LAG = timedelta(minutes=1)
"""Use is written down once in a minute."""
PROBE_SECONDS = 0.2
PATIENT_SECONDS = 3.0
"""How often a program that does not listen yet is asked, in the first minute of its job and later."""
_FAULTS = frozenset({"NodeLost", "SupervisorLost", "Preempted"})
_P = InstancePhase
_AFRESH: dict[str, Any] = dict.fromkeys(
    ("reason", "message", "url", "job", "site", "port", "started_at", "last_used_at", "expires_at", "retry_at")
)


class Step(StrEnum):
    """What is to be done, beside writing the status."""

    NOTHING = "Nothing"
    START = "Start"
    """Make the job of this start."""
    END = "End"
    """Cancel the job."""


@dataclass(frozen=True, slots=True)
class InstanceStep:
    """The next status, and what else."""

    status: InstanceStatus
    step: Step = Step.NOTHING
    stop: bool = False
    """Whether its intent becomes Stop: it is over until somebody starts it again."""
    look_after: float | None = None
    """Seconds until something may be different by itself."""


def job_name(instance: Instance) -> str:
    """What the job of the present start is called."""
    return f"{instance.name}-{instance.status.starts}"


def decide(
    instance: Instance, template: Template | None, job: Job | None, *, listens: bool, url: str | None, now: datetime
) -> InstanceStep:
    """One step. `listens`: whether the program was just seen to."""
    status, wanted = instance.status, instance.spec.intent
    if status.phase in (_P.STOPPED, _P.FAILED):
        if wanted is InstanceIntent.STOP:
            return InstanceStep(status)
        return InstanceStep(_next(status, _P.PENDING, **_AFRESH, starts=status.starts + 1, failures=0))
    if status.phase is _P.STOPPING or wanted is InstanceIntent.STOP:
        return _stopping(status, job)
    if status.starts == 0:
        return InstanceStep(_next(status, _P.PENDING, starts=1))
    if job is None:
        return _without_job(status, template, now)
    if job.status.phase.terminal:
        return _ended(status, job, now)
    if job.status.phase is not JobPhase.RUNNING:
        why = job.status.message or "its job waits to be placed"
        return InstanceStep(
            _next(status, _P.PENDING, reason=job.status.reason, message=why, site=job.status.site, url=None)
        )
    return _running(instance, template, job, listens=listens, url=url, now=now)


def _next(status: InstanceStatus, phase: InstancePhase, **fields: Any) -> InstanceStatus:
    check_transition(INSTANCE_TRANSITIONS, status.phase, phase)
    return status.model_copy(update={"phase": phase, **fields})


def _stopping(status: InstanceStatus, job: Job | None) -> InstanceStep:
    if job is not None and not job.status.phase.terminal:
        if status.phase is _P.STOPPING:
            return InstanceStep(status, Step.END)
        gone = {"reason": "Stopped", "message": "stopped; it can be started again"}
        return InstanceStep(_next(status, _P.STOPPING, url=None, **gone), Step.END)
    if status.phase is _P.STOPPING:
        return InstanceStep(_next(status, _P.STOPPED, url=None))
    return InstanceStep(
        _next(status, _P.STOPPED, url=None, reason="Stopped", message="stopped; it can be started again")
    )


def _without_job(status: InstanceStatus, template: Template | None, now: datetime) -> InstanceStep:
    if status.job is not None:
        why = {"reason": "JobDeleted", "message": f"somebody deleted its job {status.job}; start it again"}
        return InstanceStep(_next(status, _P.FAILED, url=None, **why), stop=True)
    if status.retry_at and (wait := (parse_timestamp(status.retry_at) - now).total_seconds()) > 0:
        return InstanceStep(status, look_after=wait)
    if template is None:
        why = {"reason": "NoTemplate", "message": "there is no such template; isthmus templates lists them"}
        return InstanceStep(_next(status, _P.PENDING, **why))
    return InstanceStep(status, Step.START)


def _ended(status: InstanceStatus, job: Job, now: datetime) -> InstanceStep:
    seen: JobStatus = job.status
    if seen.reason in _FAULTS and status.failures < MOST_FAILURES:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**status.failures)
        again: dict[str, Any] = {
            **_AFRESH,
            "reason": seen.reason,
            "message": f"it is started again: {seen.message or 'its machine failed'}",
            "starts": status.starts + 1,
            "failures": status.failures + 1,
            "retry_at": timestamp(now + timedelta(seconds=pause)),
        }
        return InstanceStep(_next(status, _P.PENDING, **again), look_after=pause)
    said = seen.message or seen.phase.value.lower()
    if seen.phase is JobPhase.FAILED:
        why = f"its program ended: {said}; isthmus logs {job.name} says more"
        return InstanceStep(_next(status, _P.FAILED, url=None, reason=seen.reason, message=why), stop=True)
    why = "its job was cancelled" if seen.phase is JobPhase.CANCELLED else "its program ended by itself"
    reason = "JobCancelled" if seen.phase is JobPhase.CANCELLED else "ProgramEnded"
    return InstanceStep(_next(status, _P.STOPPED, url=None, reason=reason, message=why), stop=True)


def _running(
    instance: Instance, template: Template | None, job: Job, *, listens: bool, url: str | None, now: datetime
) -> InstanceStep:
    spec, status = instance.spec, instance.status
    began = job.status.started_at or timestamp(now)
    started = parse_timestamp(began)
    life = _limit(spec.longest_life, template.spec.longest_life if template else None)
    idle = _limit(spec.idle_after, template.spec.idle_after if template else None)
    expires = None if life is None else started + timedelta(seconds=life)
    used = max(started, parse_timestamp(status.last_used_at)) if status.last_used_at else started
    unused = None if idle is None else used + timedelta(seconds=idle) + USE_LAG
    known: dict[str, Any] = {
        "site": job.status.site,
        "started_at": began,
        "expires_at": timestamp(expires) if expires else None,
    }
    if expires is not None and expires <= now:
        why = {"reason": "Expired", "message": "its longest life is over; it can be started again"}
        return InstanceStep(_next(status, _P.STOPPING, url=None, **known, **why), Step.END, stop=True)
    if unused is not None and unused <= now:
        assert idle is not None
        why = {"reason": "Idle", "message": f"nobody used it for {format_duration(idle)}; it can be started again"}
        return InstanceStep(_next(status, _P.STOPPING, url=None, **known, **why), Step.END, stop=True)
    times = [moment for moment in (expires, expires - SOON if expires else None, unused) if moment and moment > now]
    wait = min(((moment - now).total_seconds() for moment in times), default=None)
    if status.phase is _P.READY or listens:
        ready: dict[str, Any] = {"url": url, "reason": None, "message": None, "retry_at": None}
        if expires is not None and expires - SOON <= now:
            extend = f"isthmus instance extend {instance.name} 4h"
            ready |= {"reason": "ExpiresSoon", "message": f"stops at {timestamp(expires)}; {extend}"}
        if url is None:
            ready |= {"reason": "NoAddress", "message": "the server has no domain for instances: --instances-domain"}
        return InstanceStep(_next(status, _P.READY, **known, **ready), look_after=wait)
    young = (now - started).total_seconds() < 60
    pause = PROBE_SECONDS if young else PATIENT_SECONDS
    said = f"nothing listens on port {status.port} of job {job.name} yet"
    said += "" if young else f"; isthmus logs {job.name} may say why"
    why = {"reason": "NotListening", "message": said}
    return InstanceStep(_next(status, _P.STARTING, url=None, **known, **why), look_after=min(pause, wait or pause))


def _limit(own: str | None, of_template: str | None) -> float | None:
    text = own if own is not None else of_template
    seconds = parse_duration(text) if text is not None else 0
    return seconds or None


def job_of(instance: Instance, template: Template, sites: list[str]) -> dict[str, Any]:
    """The job of one start, as it goes to the store but for defaults. It may run at these sites alone."""
    spec, given = instance.spec, template.spec
    env = {variable.name: variable.value for variable in (*given.env, *spec.env)}
    placement = (spec.placement or given.placement).to_json()
    placement["sites"] = [name for name in placement.get("sites") or sites if name in sites] or sites
    resources = (spec.resources or given.resources).to_json()
    made: dict[str, Any] = {
        "command": given.command,
        "script": given.script,
        "args": given.args,
        "image": given.image,
        "files": spec.files.to_json() if spec.files else None,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": resources,
        "placement": placement,
    }
    owner = {"apiVersion": instance.api_version, "kind": instance.kind, "name": instance.name, "uid": instance.uid}
    meta = {
        "name": job_name(instance),
        "namespace": instance.namespace,
        "labels": {"isthmus.dev/instance": instance.name},
        "ownerReferences": [{**owner, "controller": True}],
    }
    kept = {name: value for name, value in made.items() if value not in (None, [])}
    return {"apiVersion": instance.api_version, "kind": "Job", "metadata": meta, "spec": kept}


def person_of(instance: Instance) -> JobStatus:
    """The job is its owner's."""
    return JobStatus(member=instance.status.member, submitted_by=instance.status.submitted_by)
