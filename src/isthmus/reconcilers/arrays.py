"""Arrays: a job that stands for many, each element a job of its own, owned by it.

Elements are made as others end, so that never more than the limit are active and an array of a hundred thousand
does not make as many objects at once. The parent's status counts them; deleting the parent deletes them.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from functools import lru_cache

from isthmus.errors import AlreadyExists
from isthmus.resources.jobs import (
    ARRAY_LABEL,
    INDEX_LABEL,
    ArrayStatus,
    Intent,
    Job,
    JobStatus,
    expand_indices,
)
from isthmus.resources.kinds import JOB
from isthmus.resources.states import JobPhase
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key, Record

from . import lifecycle
from .job_index import JobIndex
from .recording import Recorder
from .writing import Writer

BATCH = 100
"""Elements made in one step."""
AHEAD = 1000
"""Elements that may be active when the array sets no limit."""

expanded = lru_cache(maxsize=64)(expand_indices)


class ArrayKeeper:
    """Makes elements and counts them."""

    def __init__(self, jobs: Informer, index: JobIndex, writer: Writer, recorder: Recorder) -> None:
        self._jobs, self._index, self._writer, self._recorder = jobs, index, writer, recorder

    async def reconcile(self, record: Record, job: Job, now: datetime) -> Result:
        """One step for one array."""
        assert job.spec.array is not None
        indices = expanded(job.spec.array.indices)
        done = job.status.array.created if job.status.array else 0
        if job.spec.intent is Intent.CANCEL:
            await self._pass_on_cancel(record, job, indices[: done + BATCH])
            done = len(indices)
        elif job.spec.intent is Intent.RUN:
            active = self._active(job)
            room = max(0, (job.spec.array.limit or AHEAD) - active)
            for index in indices[done : done + min(room, BATCH)]:
                if clash := await self._make(record, job, index):
                    status = lifecycle.gave_up(job, JobPhase.FAILED, "NameTaken", clash, now)
                    await self._writer.status(record, status)
                    return DONE
                done += 1
        status = summary(job, self._index.children.get(job.uid, Counter()), done, len(indices), now)
        if status != job.status:
            await self._writer.status(record, status)
            if status.phase.terminal:
                self._recorder.say(job, status.reason or status.phase.value, status.message or "all elements ended")
        more = job.spec.intent is Intent.RUN and done < len(indices)
        return Result(requeue_after=0.01) if more and self._active(job) < (job.spec.array.limit or AHEAD) else DONE

    def _active(self, job: Job) -> int:
        counts = self._index.children.get(job.uid, Counter())
        return sum(count for phase, count in counts.items() if not phase.terminal)

    async def _make(self, parent: Record, job: Job, index: int) -> str | None:
        name = f"{job.name}-{index}"
        spec = {key: value for key, value in parent.obj["spec"].items() if key != "array"}
        meta = {
            "name": name,
            "namespace": job.namespace,
            "labels": {**(job.metadata.labels or {}), ARRAY_LABEL: job.name[:63], INDEX_LABEL: str(index)},
            "ownerReferences": [
                {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid, "controller": True}
            ],
        }
        child = {
            "apiVersion": job.api_version,
            "kind": job.kind,
            "metadata": meta,
            "spec": spec,
            "status": JobStatus().to_json(),
        }
        try:
            await self._writer.create(child)
        except AlreadyExists:
            there = self._jobs.get(Key(JOB.name, job.namespace, name))
            owners = there.obj["metadata"].get("ownerReferences") or [] if there else []
            if there is not None and all(owner["uid"] != job.uid for owner in owners):
                return f"element {name} cannot be made: another job has that name; delete it or rename this one"
        return None

    async def _pass_on_cancel(self, record: Record, job: Job, indices: list[int]) -> None:
        for index in indices:
            child = self._jobs.get(Key(JOB.name, job.namespace, f"{job.name}-{index}"))
            if child is None or child.obj["spec"].get("intent") == Intent.CANCEL:
                continue
            owned = any(owner["uid"] == job.uid for owner in child.obj["metadata"].get("ownerReferences") or ())
            if owned and not JobPhase(child.obj["status"]["phase"]).terminal:
                await self._writer.spec(child, intent=Intent.CANCEL.value)


def summary(job: Job, counts: Counter[JobPhase], created: int, total: int, now: datetime) -> JobStatus:
    """The parent's status from the phases of its elements: pure."""
    over = {phase: counts[phase] for phase in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)}
    active = sum(count for phase, count in counts.items() if not phase.terminal)
    cancelled = job.spec.intent is Intent.CANCEL
    array = ArrayStatus(
        total=total,
        created=created,
        active=active,
        succeeded=over[JobPhase.SUCCEEDED],
        failed=over[JobPhase.FAILED],
        cancelled=over[JobPhase.CANCELLED],
    )
    ended = sum(over.values())
    if active == 0 and (cancelled or ended >= total):
        if cancelled:
            phase, reason, message = (
                JobPhase.CANCELLED,
                "Cancelled",
                f"cancelled; {ended} of {total} elements had been made",
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
    return job.status.model_copy(update={"phase": phase, "array": array})
