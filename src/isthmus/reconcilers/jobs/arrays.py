"""Arrays: a job that stands for many, each element a job of its own, owned by it.

Elements are made as others end, so that never more than the limit are active and an array of a hundred thousand
does not make as many objects at once. The parent's status counts them; deleting the parent deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from isthmus._kit.clock import timestamp
from isthmus.errors import AlreadyExists, Conflict, Unavailable
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.writing import Writer
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import (
    ARRAY_LABEL,
    IMAGE_RESOLVED,
    INDEX_LABEL,
    ArrayStatus,
    Intent,
    Job,
    JobStatus,
)
from isthmus.resources.kinds import JOB
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key, Record

from . import lifecycle
from .job_index import JobIndex
from .runs import expanded

BATCH = 100
"""Elements made in one step."""
AHEAD = 1000
"""Elements that may be active when the array sets no limit."""

_OF_THE_ARRAY = frozenset({"array", "dependencies", "ttlAfterFinished"})
"""What the array itself sees to; its elements do not."""


class ArrayKeeper:
    """Makes elements and counts them."""

    def __init__(self, jobs: Informer, index: JobIndex, writer: Writer, recorder: Recorder) -> None:
        self._jobs, self._index, self._writer, self._recorder = jobs, index, writer, recorder

    async def reconcile(self, record: Record, job: Job, now: datetime) -> Result:
        """One step for one array."""
        assert job.spec.array is not None
        indices, limit, before = expanded(job.spec.array.indices), job.spec.array.limit or AHEAD, job.status
        done = job.status.array.created if job.status.array else 0
        if job.spec.intent is Intent.CANCEL:
            await self._pass_on_cancel(job)
        elif job.spec.intent is Intent.RUN:
            if self._is_unresolved(job):
                job, begun = self._with_image(job, indices[: min(done, BATCH)])
                limit = limit if begun else 1
            room = max(0, limit - self._active(job))
            for index in indices[done : done + min(room, BATCH)]:
                if clash := await self._make(record, job, index):
                    status = lifecycle.gave_up(job, JobPhase.FAILED, "NameTaken", clash, now)
                    await self._writer.status(record, status)
                    return DONE
                done += 1
        counts = self._index.children.get(job.uid, Counter())
        status = summary(job, counts, max(done, sum(counts.values())), len(indices), now)
        if status != before:
            if status.reason == "ElementsFailed" and (first := self._first_failure(job, indices)):
                status = status.model_copy(update={"message": f"{status.message}; the first, {first}"})
            await self._writer.status(record, status)
            if status.phase.terminal:
                self._recorder.say(job, status.reason or status.phase.value, status.message or "all elements ended")
        more = job.spec.intent is Intent.RUN and done < len(indices)
        return Result(requeue_after=0.01) if more and self._active(job) < limit else DONE

    @staticmethod
    def _is_unresolved(job: Job) -> bool:
        """Whether the site looks up which bytes the image is: then one element goes first, and the others follow it."""
        return job.status.image is None and any(known.type == IMAGE_RESOLVED for known in job.status.conditions)

    def _with_image(self, job: Job, made: Sequence[int]) -> tuple[Job, bool]:
        """The array with the image that its first elements found; and whether one of them has begun."""
        begun = False
        for index in made:
            child = self._jobs.get(Key(JOB.name, job.namespace, f"{job.name}-{index}"))
            status = (child.obj.get("status") or {}) if child else {}
            begun = begun or child is None or bool(status.get("startedAt"))
            if image := status.get("image"):
                return job.model_copy(update={"status": job.status.model_copy(update={"image": image})}), True
        return job, begun

    def _first_failure(self, job: Job, indices: Sequence[int]) -> str | None:
        """Which element failed first by its index, and why."""
        for index in indices:
            child = self._jobs.get(Key(JOB.name, job.namespace, f"{job.name}-{index}"))
            status = (child.obj.get("status") or {}) if child else {}
            if status.get("phase") == JobPhase.FAILED:
                why = status.get("message") or f"exit code {status.get('exitCode')}"
                return f"{job.name}-{index}: {str(why)[:300]}"
        return None

    def _active(self, job: Job) -> int:
        counts = self._index.children.get(job.uid, Counter())
        return sum(count for phase, count in counts.items() if not phase.terminal)

    async def _make(self, parent: Record, job: Job, index: int) -> str | None:
        name = f"{job.name}-{index}"
        spec = {key: value for key, value in parent.obj["spec"].items() if key not in _OF_THE_ARRAY}
        meta = {
            "name": name,
            "namespace": job.namespace,
            "labels": {**(job.metadata.labels or {}), ARRAY_LABEL: array_label(job.name), INDEX_LABEL: str(index)},
            "ownerReferences": [
                {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid, "controller": True}
            ],
        }
        child = {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "metadata": meta,
            "spec": spec,
            "status": _inherited(job).to_json(),
        }
        try:
            await self._writer.create(child)
        except AlreadyExists:
            there = self._jobs.get(Key(JOB.name, job.namespace, name))
            if there is None:
                raise Conflict(f"{name} was made a moment ago; the watch will say by whom") from None
            meta = there.obj["metadata"]
            if any(owner["uid"] == job.uid for owner in meta.get("ownerReferences") or ()):
                return None
            if "deletionTimestamp" in meta:
                raise Unavailable(f"another job called {name} is still being removed") from None
            return f"element {name} cannot be made: another job has that name; delete it or rename this one"
        return None

    async def _pass_on_cancel(self, job: Job) -> None:
        for key in sorted(self._index.active.get(job.uid, ())):
            child = self._jobs.get(key)
            if child is not None and child.obj["spec"].get("intent") != Intent.CANCEL:
                await self._writer.spec(child, intent=Intent.CANCEL.value)


def _inherited(job: Job) -> JobStatus:
    """What an element begins with: whose it is, and which bytes its image is."""
    known = [condition for condition in job.status.conditions if condition.type == IMAGE_RESOLVED]
    status = job.status
    return JobStatus(member=status.member, submitted_by=status.submitted_by, image=status.image, conditions=known)


def array_label(name: str) -> str:
    """The array's name as its elements bear it: a label is shorter than a name, and ends in a letter or digit."""
    return name[:63].rstrip("-.")


def summary(job: Job, counts: Counter[JobPhase], created: int, total: int, now: datetime) -> JobStatus:
    """The parent's status from the phases of its elements: pure."""
    over = {phase: counts[phase] for phase in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)}
    active = sum(count for phase, count in counts.items() if not phase.terminal)
    cancelled = job.spec.intent is Intent.CANCEL
    before = job.status.array or ArrayStatus()
    # An element that ended and was deleted since still counts.
    array = ArrayStatus(
        total=total,
        created=created,
        active=active,
        succeeded=max(before.succeeded, over[JobPhase.SUCCEEDED]),
        failed=max(before.failed, over[JobPhase.FAILED]),
        cancelled=max(before.cancelled, over[JobPhase.CANCELLED]),
    )
    ended = array.succeeded + array.failed + array.cancelled
    if active == 0 and (cancelled or created >= total):
        if cancelled:
            phase, reason, message = (
                JobPhase.CANCELLED,
                "Cancelled",
                f"cancelled; {created} of {total} elements had been made",
            )
        elif array.failed:
            phase, reason, message = JobPhase.FAILED, "ElementsFailed", f"{array.failed} of {total} elements failed"
        elif array.cancelled:
            phase, reason = JobPhase.CANCELLED, "ElementsCancelled"
            message = f"{array.cancelled} of {total} elements were cancelled"
        else:
            phase, reason, message = JobPhase.SUCCEEDED, None, None
        status = job.status.model_copy(update={"phase": phase, "reason": reason, "message": message, "array": array})
        return lifecycle.finished(status, now)
    phase = (
        JobPhase.RUNNING
        if ended or any(counts[p] for p in (JobPhase.RUNNING, JobPhase.FINISHING))
        else job.status.phase
    )
    started = job.status.started_at or (timestamp(now) if phase is JobPhase.RUNNING else None)
    return job.status.model_copy(update={"phase": phase, "array": array, "started_at": started})
