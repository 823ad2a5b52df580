"""Objects that others wrote past our API, or an earlier version let pass: refused here, with the models' own sentence.

Where a cluster is the store, anybody with kubectl writes objects that only a schema has checked. Reconcilers must never
see one that the models would not take. A new one is not shown to them at all; of one that was good and was changed for
the worse, they go on seeing the spec that was good. The object itself says what is wrong with it: a job that has not
begun fails, with the reason `Invalid`; everything else gets the condition `Accepted`, which turns true when
it is mended.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import Conflict, Invalid, IsthmusError, NotFound
from isthmus.resources.frame.changing import check_change
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB, KINDS, Kind
from isthmus.runtime.declaring import Background
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Part, Record, Store

if TYPE_CHECKING:
    from .shared import Shared

log = logging.getLogger(__name__)

CONDITION = "Accepted"


class Refuser:
    """Checks what informers hear, and says on the objects what is wrong."""

    def __init__(self, store: Store, leadership: Leadership) -> None:
        self._store, self._leadership = store, leadership
        self._checked: dict[Key, tuple[str, int | None]] = {}
        self._wrong: dict[Key, str] = {}
        self._queue: asyncio.Queue[tuple[Record, str]] = asyncio.Queue()

    def accept(self, record: Record, known: Record | None) -> Record | None:
        """The informer's filter. An object is checked once for each change of its spec."""
        state = (record.uid, record.obj["metadata"].get("generation"))
        if self._checked.get(record.key) == state:
            return record
        try:
            _check(record, known)
        except Invalid as error:
            if self._wrong.get(record.key) != error.message or _unsaid(record):
                self._wrong[record.key] = error.message
                self._queue.put_nowait((record, error.message))
            return _with_good_spec(record, known)
        self._checked[record.key] = state
        if self._wrong.pop(record.key, None) is not None or _complains(record):
            self._queue.put_nowait((record, ""))
        return record

    async def run(self) -> None:
        """Say it on the objects, until cancelled."""
        while True:
            record, message = await self._queue.get()
            try:
                self._leadership.check()
                await self._notify(KINDS[record.key.kind], record, message)
            except (Conflict, NotFound):
                continue  # changed meanwhile: the watch brings it again
            except IsthmusError as error:
                log.warning("not written on the object", extra={"key": str(record.key), "error": str(error)})
                await asyncio.sleep(1)
                self._queue.put_nowait((record, message))

    async def _notify(self, kind: Kind, record: Record, message: str) -> None:
        obj, now = record.obj, timestamp(utcnow())
        status = dict(obj.get("status") or {})
        if kind is JOB and message and status.get("phase") == JobPhase.PENDING:
            status |= {"phase": JobPhase.FAILED.value, "reason": "Invalid", "message": message, "finishedAt": now}
        verdict = Condition(
            type=CONDITION,
            status=ConditionStatus.FALSE if message else ConditionStatus.TRUE,
            reason="Invalid" if message else "",
            message=message,
            observed_generation=obj["metadata"].get("generation"),
        )
        before = [Condition.model_validate(item) for item in status.get("conditions") or ()]
        status["conditions"] = [condition.to_json() for condition in set_condition(before, verdict, now)]
        await self._store.update(kind, {**obj, "status": status}, Part.STATUS)


def _check(record: Record, known: Record | None) -> None:
    """What the API checks of an object and of a change to it."""
    kind = KINDS[record.key.kind]
    checked = validate(kind, record.obj)
    if known is not None and known.uid == record.uid and "spec" in checked:
        check_change(kind, validate(kind, known.obj), checked)


def _with_good_spec(record: Record, known: Record | None) -> Record | None:
    if known is None or known.uid != record.uid:
        return None
    return Record(record.key, record.uid, record.version, orjson.dumps({**record.obj, "spec": known.obj["spec"]}))


def _verdict(record: Record) -> Any:
    conditions = (record.obj.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == CONDITION), None)


def _complains(record: Record) -> bool:
    """Whether the object still says that it is wrong."""
    verdict = _verdict(record)
    return verdict is not None and verdict.get("status") == ConditionStatus.FALSE


def _unsaid(record: Record) -> bool:
    """Whether it does not say so yet, for this state of its spec."""
    verdict = _verdict(record)
    return not _complains(record) or verdict.get("observedGeneration") != record.obj["metadata"].get("generation")


def declare(shared: Shared) -> Background:
    """The part that says on objects what is wrong with them."""
    return Background(name="refuser", run=shared.refuser.run)
