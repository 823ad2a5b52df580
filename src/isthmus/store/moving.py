"""Moving all objects from one store to another: out as plain objects, and in again, as often as it takes.

**Out.** Every object with its status, owners before what they own, and a last document that says how many there were:
a file that was cut short is recognised. Left out are kinds that are not `exported` (events, which are news and not
state), the lease of the leader, and credentials unless asked for: whoever has the hashes of tokens could try to guess.

**In.** A store gives every object a new uid. What was known by the old one is kept: engines know jobs and sites by
the `identity` that the kind declares, and references by uid (owners, and what the kind `refers` to) are changed to the
new uids. Each object is marked
with the uid it came with, so that an import that was broken off can be repeated: what is there already and carries the
mark is left alone, and only what was half done is finished. An object of the same name without the mark is
somebody else's; it is reported, and never touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus.errors import AlreadyExists, Invalid, IsthmusError, Misconfigured, NotFound
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import KINDS, LEASE, Kind, owners_first
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.resources.work.paths import replaced_at, values_at

from .base import Key, Object, Part, Query, Record, Store
from .changes import key_of

SUMMARY = "ExportSummary"
CAME_AS = "isthmus.dev/came-as"
"""The mark: the uid that an object had where it came from."""
_FRESH = timedelta(seconds=30)
LEADER = Key(LEASE.name, SYSTEM_NAMESPACE, "leader")
IMPORTING = Key(LEASE.name, SYSTEM_NAMESPACE, "importing")
"""There while an import is under way or was broken off. No control plane may act on half of the truth."""
SESSIONS = "console-session-"
"""How the leases of the console's sessions begin."""
AUDIT_LOGS = "audit-log-"
"""How the leases begin that say how far an audit log has come."""
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels", "annotations", "finalizers",
         "ownerReferences")  # fmt: skip


async def export_objects(store: Store, *, tokens: bool = False) -> AsyncIterator[Object]:
    """All objects in an order in which they can be made again, then the summary."""
    count = 0
    for kind in owners_first():
        if not kind.exported or (kind.credential and not tokens):
            continue
        page = await store.list(Query(kind, kind.only_in or None))
        for record in _owners_first(kind, (r for r in page.records if not _passing(r.key))):
            count += 1
            yield _outward(record.obj)
    yield {"apiVersion": "isthmus.dev/v1", "kind": SUMMARY, "objects": count, "tokens": tokens}


def _passing(key: Key) -> bool:
    """What belongs to those who are at work just now: who leads, who imports, who is signed in to the console, and
    logs that lie with their files."""
    return key in (LEADER, IMPORTING) or (key.kind == LEASE.name and key.name.startswith((SESSIONS, AUDIT_LOGS)))


async def check_complete(store: Store) -> None:
    """Raise Misconfigured when an import into this store was begun and not finished."""
    try:
        await store.get(IMPORTING)
    except NotFound:
        return
    raise Misconfigured(
        "an import into this store was begun and not finished, so jobs may be missing; repeat it: isthmus import FILE"
    )


async def is_led(store: Store, now: datetime) -> bool:
    """Whether a control plane acts on this store now, going by the lease that it renews each second."""
    try:
        spec = (await store.get(LEADER)).obj.get("spec") or {}
    except NotFound:
        return False
    renewed = spec.get("renewTime") if spec.get("holderIdentity") else None
    return renewed is not None and now - parse_timestamp(renewed) < _FRESH


def check_whole(objects: list[Object]) -> list[Object]:
    """The objects of an export without its summary; raises Invalid when some are missing."""
    if not objects or objects[-1].get("kind") != SUMMARY:
        raise Invalid("the export was cut short: its last document, a summary, is missing; export again")
    *found, summary = objects
    if summary.get("objects") != len(found):
        raise Invalid(f"the export says it holds {summary.get('objects')} objects, but {len(found)} are there")
    return found


@dataclass(slots=True)
class ImportReport:
    """What became of an import."""

    made: int = 0
    finished: int = 0
    """Made by an earlier import that was broken off, and completed now."""
    there: int = 0
    """There already, from an earlier import."""
    refused: list[tuple[Key, str]] = field(default_factory=list)


class Importer:
    """Brings objects into a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uids: dict[str, str] = {}
        self.report = ImportReport()

    async def run(self, objects: Iterable[Mapping[str, Any]]) -> ImportReport:
        """Make every object that is not there. One that is refused does not stop the others."""
        mark = {"metadata": {"name": IMPORTING.name, "namespace": IMPORTING.namespace}, "spec": {}}
        with contextlib.suppress(AlreadyExists):
            await self._store.create(LEASE, mark)
        await self._take_all(objects)
        await self._store.delete(IMPORTING)
        return self.report

    async def _take_all(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Each after those whose uid it carries: anything may own anything, whatever the order of the kinds."""
        waiting = [(_kind_of(obj), obj) for obj in objects]
        coming = {str(obj["metadata"].get("uid")) for _, obj in waiting}
        while waiting:
            later = []
            for kind, obj in waiting:
                uid = str(obj["metadata"].get("uid"))
                if any(other in coming and other != uid for other in _uids_in(kind, obj)):
                    later.append((kind, obj))
                else:
                    await self._try_to_take(kind, obj)
                    coming.discard(uid)
            if len(later) == len(waiting):
                coming = set()  # a circle: taken as they come
            waiting = later

    async def _try_to_take(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        key = key_of(kind, obj)
        try:
            await self.take(kind, key, obj)
        except IsthmusError as error:
            if error.transient:
                raise
            self.report.refused.append((key, error.message))

    async def take(self, kind: Kind, key: Key, obj: Mapping[str, Any]) -> None:
        """Take over one object."""
        uid = str(obj["metadata"].get("uid") or "")
        new = self._inward(kind, obj, uid)
        try:
            record = await self._store.create(kind, new)
            self.report.made += 1
        except AlreadyExists:
            record = await self._known(kind, key, new, uid)
        self._uids[uid] = record.uid
        if obj["metadata"].get("deletionTimestamp") and not record.obj["metadata"].get("deletionTimestamp"):
            await self._store.delete(key, uid=record.uid)

    async def _known(self, kind: Kind, key: Key, new: Object, uid: str) -> Record:
        """What an earlier import made; its status may be missing still where that is a second step."""
        record = await self._store.get(key)
        if (record.obj["metadata"].get("annotations") or {}).get(CAME_AS) != uid:
            raise AlreadyExists(f"{key} is there already and did not come from this export; delete one of them")
        status = record.obj.get("status") or {}
        if kind.has_status and new.get("status") and status == _initial(kind, new) != new["status"]:
            record = await self._store.update(kind, {**record.obj, "status": new["status"]}, Part.STATUS)
            self.report.finished += 1
        else:
            self.report.there += 1
        return record

    def _inward(self, kind: Kind, obj: Mapping[str, Any], uid: str) -> Object:
        meta = {name: obj["metadata"][name] for name in _KEPT if obj["metadata"].get(name)}
        for field_ in ("uid", "creationTimestamp", "deletionTimestamp"):
            meta.pop(field_, None)
        meta["annotations"] = {**meta.get("annotations", {}), CAME_AS: uid}
        if "ownerReferences" in meta:
            meta["ownerReferences"] = [
                {**owner, "uid": self._uids.get(owner["uid"], owner["uid"])} for owner in meta["ownerReferences"]
            ]
        new: Object = {**obj, "metadata": meta}
        if kind.custom:
            new = validate(kind, new)
        for reference in kind.refers:
            if reference.by_uid:
                new = replaced_at(new, reference.path, lambda old: self._uids.get(old, old))
        return _identified(new, kind.identity, uid) if kind.identity else new


def _identified(obj: Object, path: str, uid: str) -> Object:
    """The object with the uid that it is known by elsewhere, unless it came from yet another place before."""
    part, name = path.split(".")
    return {**obj, part: {name: uid, **(obj.get(part) or {})}}


def _kind_of(obj: Mapping[str, Any]) -> Kind:
    kind = KINDS.get(str(obj.get("kind")))
    if kind is None or not kind.exported:
        raise Invalid(f"{obj.get('kind')!r} is no kind that can be imported; is this an export of Isthmus?")
    return kind


def _uids_in(kind: Kind, obj: Mapping[str, Any]) -> list[Any]:
    """The uids of others that an object carries."""
    paths = ["metadata.ownerReferences[].uid", *(reference.path for reference in kind.refers if reference.by_uid)]
    return [uid for path in paths for uid in values_at(obj, path)]


def _initial(kind: Kind, obj: Object) -> Any:
    return validate(kind, {**obj, "status": {}}).get("status")


def _outward(obj: Mapping[str, Any]) -> Object:
    meta = {name: obj["metadata"][name] for name in _KEPT if obj["metadata"].get(name)}
    return {**obj, "metadata": meta}


def _owners_first(kind: Kind, records: Iterable[Record]) -> list[Record]:
    """Owners before what they own, else in the order of keys. Circles are cut anywhere."""
    waiting = {record.uid: record for record in records}
    found: list[Record] = []
    for start in list(waiting):
        path = [start]
        while path:
            record = waiting.get(path[-1])
            if record is None:
                path.pop()
                continue
            above = next((uid for uid in _uids_in(kind, record.obj) if uid in waiting and uid not in path), None)
            if above is not None:
                path.append(above)
            else:
                found.append(waiting.pop(path.pop()))
    return found
