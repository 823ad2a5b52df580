"""What must be known of all jobs together: who waits, who takes room, who depends on whom, who is in which array.

Fed by the informer, one change at a time; everything in it can be made again from the jobs. It never decides: it
keeps the ledger and says which keys deserve a look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from isthmus.images.references import is_file
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.frame.states import TERMINAL, JobPhase
from isthmus.resources.jobs import ARRAY_LABEL, IMAGE_RESOLVED, Intent, Job, JobSpec, JobStatus
from isthmus.resources.kinds import JOB
from isthmus.resources.work.plans import DeviceChosen
from isthmus.scheduling.demands import Demand, demand_of
from isthmus.scheduling.ledger import Ledger, Occupying, Waiting
from isthmus.store.base import Key, Record


class JobIndex:
    """The jobs, from the sides that single keys do not show."""

    def __init__(self, look: Callable[[Key], None], room_changed: Callable[[], None]) -> None:
        self.ledger = Ledger()
        self.keys: dict[str, Key] = {}
        """Where the job with a uid, or of an identity, lives."""
        self.children: dict[str, Counter[JobPhase]] = {}
        """For each array, how many elements are in which phase."""
        self.active: dict[str, set[Key]] = {}
        """For each array, the elements that have not ended."""
        self.promised: dict[str, str] = {}
        """Jobs that are ready, and their deadlines: the planner gives them a site, not the queue."""
        self.stoppable: set[str] = set()
        """Restartable jobs that run."""
        self.movable: set[str] = set()
        """Those among them that have a deadline: for its sake they may be stopped and go on elsewhere."""
        self.placed_here: set[str] = set()
        """Jobs that got their site since we lead: nobody else can be about to submit them."""
        self._look, self._room_changed = look, room_changed
        self._specs: dict[str, tuple[int, JobSpec, Demand]] = {}
        self._over: set[str] = set()
        self._dependents: dict[Key, set[Key]] = {}

    def changed(self, old: Record | None, new: Record | None) -> None:
        """The informer's handler."""
        if old is not None and (new is None or new.uid != old.uid):
            self._gone(old)
            old = None
        if new is None:
            return
        self.keys[new.uid] = new.key
        if identity := new.obj["status"].get("identity"):
            self.keys[identity] = new.key
        obj = new.obj
        phase = JobPhase(obj["status"]["phase"])
        before = JobPhase(old.obj["status"]["phase"]) if old else None
        self._count_child(new.key, (_array_of(old.obj) if old else None, before), (_array_of(obj), phase))
        if old is None:
            self._note_dependencies(new.key, obj, present=phase not in TERMINAL)
        elif before is not phase:
            self._wake_dependents(new.key)
            if phase in TERMINAL:
                self._note_dependencies(new.key, obj, present=False)
        if phase in TERMINAL or phase is JobPhase.PENDING:
            self.placed_here.discard(new.uid)
        elif before is JobPhase.PENDING:
            self.placed_here.add(new.uid)
        self._keep_ledger(new, obj, phase)
        if self._deserves_a_look(old, obj, before, phase):
            self._look(new.key)
        if phase in TERMINAL:
            self._over.add(new.uid)
            new.shrink()  # most jobs are over, and nobody looks at them

    def job(self, record: Record) -> Job:
        """The typed job. Its spec, which rarely changes, is read once and not at every step."""
        obj = record.obj
        meta, status = ObjectMeta.model_validate(obj["metadata"]), JobStatus.model_validate(obj["status"])
        return Job.model_construct(metadata=meta, spec=self._wanted(record)[0], status=status)

    def demand(self, record: Record) -> Demand:
        """What a job needs, worked out once; with a choice of devices, what it was given."""
        spec, demand = self._wanted(record)
        if chosen := record.obj["status"].get("chosen"):
            return demand_of(record.key.namespace, spec, DeviceChosen.model_validate(chosen))
        return demand

    def _wanted(self, record: Record) -> tuple[JobSpec, Demand]:
        generation = record.obj["metadata"].get("generation", 0)
        known = self._specs.get(record.uid)
        if known is None or known[0] != generation:
            known = (generation, *_wanted(record.key.namespace, orjson.dumps(record.obj["spec"])))
            if record.uid not in self._over:
                self._specs[record.uid] = known
        return known[1:]

    def ended(self, uid: str) -> bool:
        """Whether a job is over."""
        return uid in self._over

    def ready(self, uid: str, demand: Demand, priority: int, *, deadline: str | None = None) -> None:
        """A job waits for a site. What is promised for a deadline is planned; the others queue."""
        if deadline:
            if self.ledger.drop(uid) or self.promised.get(uid) != deadline:
                self.promised[uid] = deadline
                self._room_changed()
            return
        self.promised.pop(uid, None)
        if self.ledger.put(Waiting(uid, demand, priority)):
            self._room_changed()

    def unready(self, uid: str) -> None:
        """A job must not be placed now. Room that it takes it keeps, until its run has ended."""
        self.promised.pop(uid, None)
        if self.ledger.waits(uid):
            self.ledger.drop(uid)

    def _keep_ledger(self, record: Record, obj: dict[str, Any], phase: JobPhase) -> None:
        uid, spec = record.uid, obj["spec"]
        self._note_stoppable(uid, obj, phase)
        if phase is not JobPhase.PENDING:
            self.promised.pop(uid, None)
        if phase in TERMINAL or spec.get("array"):
            self._specs.pop(uid, None)
            if self.ledger.drop(uid):
                self._room_changed()
            return
        if phase.occupies:
            self.ledger.put(Occupying(uid, self.demand(record), obj["status"].get("site", "")))
        elif simply_ready(obj):
            self.ready(uid, self.demand(record), spec.get("priority", 0), deadline=spec.get("deadline"))
        else:
            self.promised.pop(uid, None)
            if self.ledger.drop(uid):  # was placed, waits for its next attempt
                self._room_changed()

    def _note_stoppable(self, uid: str, obj: dict[str, Any], phase: JobPhase) -> None:
        if phase is JobPhase.RUNNING and obj["spec"].get("restartable") and "preemption" not in obj["status"]:
            self.stoppable.add(uid)
            (self.movable.add if obj["spec"].get("deadline") else self.movable.discard)(uid)
        else:
            self.stoppable.discard(uid)
            self.movable.discard(uid)

    def _deserves_a_look(
        self, old: Record | None, obj: dict[str, Any], before: JobPhase | None, phase: JobPhase
    ) -> bool:
        meta, spec = obj["metadata"], obj["spec"]
        if meta.get("deletionTimestamp"):
            return True
        changed = old is None or old.obj["metadata"].get("generation") != meta.get("generation")
        if phase in TERMINAL:
            return bool(spec.get("ttlAfterFinished")) and (before is not phase or changed)
        if spec.get("array"):
            return True
        if phase is JobPhase.PLACED:  # not for a message: a site that does not answer would be asked without a pause
            return changed or before is not phase or _placed_at(old) != obj["status"].get("placedAt")
        if phase is JobPhase.PENDING:
            return not simply_ready(obj) or bool(spec.get("deadline"))
        return changed or (phase is JobPhase.RUNNING and "preemption" in obj["status"])

    def _gone(self, record: Record) -> None:
        self._count_child(record.key, (_array_of(record.obj), JobPhase(record.obj["status"]["phase"])), (None, None))
        self.keys.pop(record.uid, None)
        self.keys.pop(record.obj["status"].get("identity"), None)
        self._over.discard(record.uid)
        self.placed_here.discard(record.uid)
        self.children.pop(record.uid, None)
        self.active.pop(record.uid, None)
        self._specs.pop(record.uid, None)
        self.promised.pop(record.uid, None)
        self.stoppable.discard(record.uid)
        self.movable.discard(record.uid)
        self._note_dependencies(record.key, record.obj, present=False)
        self._wake_dependents(record.key)
        if self.ledger.drop(record.uid):
            self._room_changed()

    def _count_child(self, key: Key, before: _Element, after: _Element) -> None:
        """An element went from one phase to another; or, where somebody changed its owner, from one array."""
        if before == after:
            return
        for (array, phase), step in ((before, -1), (after, 1)):
            if array is None or phase is None:
                continue
            if step < 0 and array not in self.children:
                continue  # the array went first
            self.children.setdefault(array, Counter())[phase] += step
            active = self.active.setdefault(array, set())
            if step > 0 and phase not in TERMINAL:
                active.add(key)
            else:
                active.discard(key)
            if parent := self.keys.get(array):
                self._look(parent)

    def is_awaited(self, key: Key) -> bool:
        """Whether any job that has not ended depends on this name."""
        return key in self._dependents

    def _note_dependencies(self, key: Key, obj: dict[str, Any], *, present: bool) -> None:
        for dependency in obj["spec"].get("dependencies") or ():
            on = Key(JOB.name, key.namespace, dependency["job"])
            waiting = self._dependents.setdefault(on, set())
            if present:
                waiting.add(key)
            else:
                waiting.discard(key)
            if not waiting:
                del self._dependents[on]

    def _wake_dependents(self, key: Key) -> None:
        for dependent in self._dependents.get(key, ()):
            self._look(dependent)


def _placed_at(record: Record | None) -> str | None:
    return record.obj["status"].get("placedAt") if record else None


_Element = tuple[str | None, JobPhase | None]
"""The array that a job is an element of, and its phase."""


def _array_of(obj: dict[str, Any]) -> str | None:
    """The uid of the array that a job is an element of."""
    if ARRAY_LABEL not in (obj["metadata"].get("labels") or {}):
        return None
    owner = next(iter(obj["metadata"].get("ownerReferences") or ()), None)
    return owner["uid"] if owner is not None else None


@lru_cache(maxsize=1024)
def _wanted(namespace: str, spec: bytes) -> tuple[JobSpec, Demand]:
    """What a job wants and needs. Jobs come by the hundred and differ in nothing of this: they share it."""
    wanted = JobSpec.model_validate(orjson.loads(spec))
    return wanted, demand_of(namespace, wanted)


def needs_resolving(image: str, status: Mapping[str, Any]) -> bool:
    """Whether it is still to be found out which bytes a tag means, and that was not left to the site."""
    if status.get("image") or "@" in image or is_file(image):
        return False
    return not any(condition.get("type") == IMAGE_RESOLVED for condition in status.get("conditions") or ())


def simply_ready(obj: dict[str, Any]) -> bool:
    """Whether a pending job can be placed without a closer look."""
    spec, status = obj["spec"], obj["status"]
    return (
        spec.get("intent", Intent.RUN) == Intent.RUN
        and not spec.get("dependencies")
        and not spec.get("array")
        and not status.get("retryAt")
        and not (spec.get("image") and needs_resolving(spec["image"], status))
        and not obj["metadata"].get("deletionTimestamp")
    )
