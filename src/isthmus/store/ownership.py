"""What a deletion means for owners and owned objects. Pure; part of the transaction that deletes.

- *Background*: an object that goes takes along what it owns. An owned object that has another living owner only
  loses the reference; one with finalizers is marked and goes when they are done.
- *Foreground*: the owned objects go first. While some are held by finalizers, the owner is marked and carries the
  finalizer `foregroundDeletion`, which is taken away with the last of them.
- *Orphan*: the references are taken out of the owned objects, which stay.

Because all this happens in the transaction of the deletion, an owner cannot vanish between the check of a new
object's owners and its creation: an object whose owners are all gone is refused, never left behind.

Everything here walks with lists, never by recursion: chains of owners may be long, and circles are possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from isthmus.errors import Cause, Invalid
from isthmus.resources.kinds import KINDS, Kind

from .base import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Key, Object, Propagation, Record

if TYPE_CHECKING:
    from .changes import Transaction


def owner_uids(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """The uids of an object's owners."""
    references = obj["metadata"].get("ownerReferences")
    return tuple(reference["uid"] for reference in references if reference.get("uid")) if references else ()


def owner_key(reference: Mapping[str, Any], namespace: str) -> Key | None:
    """Where the owner of an object in this namespace must be: in the same namespace, or in none."""
    kind = KINDS.get(reference.get("kind", ""))
    return Key(kind.name, namespace if kind.namespaced else "", reference.get("name", "")) if kind else None


def check_owners(
    ledger: Transaction, key: Key, references: Iterable[Mapping[str, Any]], before: Iterable[Mapping[str, Any]]
) -> None:
    """Raise Invalid when new references were added and no owner is alive: nothing would ever collect the object."""
    known = {reference.get("uid") for reference in before}
    added = [reference for reference in references if reference.get("uid") not in known]
    if added and not any(_living(ledger, reference, key.namespace) for reference in references):
        owner = f"{added[0].get('kind')} {added[0].get('name')} (uid {added[0].get('uid')})"
        message = (
            f"the owner of {key}, {owner}, does not exist in its namespace or is being deleted; "
            "name an owner that lives, or none"
        )
        raise Invalid(message, causes=(Cause("metadata.ownerReferences", message),))


def delete(ledger: Transaction, kind: Kind, key: Key, old: Record, propagation: Propagation) -> Record:
    """Delete an object; the last version, or the one marked for deletion."""
    finalizers = old.obj["metadata"].get("finalizers", ())
    if propagation is Propagation.FOREGROUND or FOREGROUND_FINALIZER in finalizers:
        return _delete_foreground(ledger, key, old)
    if propagation is Propagation.ORPHAN or ORPHAN_FINALIZER in finalizers:
        for owned in ledger.owned(old.uid):
            _disown(ledger, owned, old.uid)
    kept = [finalizer for finalizer in finalizers if finalizer != ORPHAN_FINALIZER]
    return _finish(ledger, kind, key, old, kept)


def remove(ledger: Transaction, kind: Kind, key: Key, last: Object, old: Record) -> Record:
    """Remove an object whose last state is `last`, and all that goes with it."""
    record = ledger.remove(kind, key, last, old)
    gone = [(old.uid, key, last)]
    for uid, at, obj in gone:  # grows while it is walked
        for owned in ledger.owned(uid):
            _collect(ledger, owned, uid, gone)
        for reference in obj["metadata"].get("ownerReferences", ()):
            _release(ledger, owner_key(reference, at.namespace), reference.get("uid"), gone)
    return record


Gone = list[tuple[str, Key, Object]]


def _collect(ledger: Transaction, key: Key, owner: str, gone: Gone) -> None:
    """The owner of this object is gone."""
    record = ledger.find(key)
    if record is None:
        return
    meta = record.obj["metadata"]
    if any(_living(ledger, other, key.namespace) for other in meta["ownerReferences"] if other.get("uid") != owner):
        _disown(ledger, key, owner)
    elif not meta.get("finalizers"):
        last = _copy(record.obj)
        ledger.remove(KINDS[key.kind], key, last, record)
        gone.append((record.uid, key, last))
    elif "deletionTimestamp" not in meta:
        _mark(ledger, KINDS[key.kind], key, record, meta["finalizers"])


def _release(ledger: Transaction, key: Key | None, uid: Any, gone: Gone) -> None:
    """Something that this owner may have waited for is gone."""
    record = ledger.find(key) if key else None
    if key is None or record is None or record.uid != uid or not _waiting(record):
        return
    if ledger.owns_any(record.uid):
        return
    kind, last = KINDS[key.kind], _copy(record.obj)
    last["metadata"]["finalizers"] = [f for f in last["metadata"]["finalizers"] if f != FOREGROUND_FINALIZER]
    if last["metadata"]["finalizers"]:
        ledger.write(kind, key, last, record)
        return
    del last["metadata"]["finalizers"]
    ledger.remove(kind, key, last, record)
    gone.append((record.uid, key, last))


def _delete_foreground(ledger: Transaction, root: Key, old: Record) -> Record:
    """Delete what is owned, deepest first; what is held by finalizers holds its owners."""
    order = [(root, old.uid)]
    index = {root: 0}
    for _, uid in order:  # grows while it is walked
        for key in ledger.owned(uid):
            if key in index:
                continue
            record = ledger.find(key)
            assert record is not None
            if _others_live(ledger, key, record, uid, index):
                _disown(ledger, key, uid)
            else:
                index[key] = len(order)
                order.append((key, record.uid))
    for position, (key, uid) in reversed(list(enumerate(order))):
        record = ledger.find(key)
        if record is None or record.uid != uid:
            continue
        # Those further up wait for this one; were it to wait for them too, a circle would never end.
        held = any(index.get(owned, 0) > position for owned in ledger.owned(uid))
        finalizers = [f for f in record.obj["metadata"].get("finalizers", ()) if f != FOREGROUND_FINALIZER]
        _finish(ledger, KINDS[key.kind], key, record, [*finalizers, FOREGROUND_FINALIZER] if held else finalizers)
    entry = ledger.latest.get(root)
    return entry.record if entry else old


def _finish(ledger: Transaction, kind: Kind, key: Key, old: Record, finalizers: list[str]) -> Record:
    """Mark the object when finalizers are left, else remove it."""
    if finalizers:
        return _mark(ledger, kind, key, old, finalizers)
    last = _copy(old.obj)
    last["metadata"].pop("finalizers", None)
    return remove(ledger, kind, key, last, old)


def _mark(ledger: Transaction, kind: Kind, key: Key, old: Record, finalizers: list[str]) -> Record:
    meta = old.obj["metadata"]
    if "deletionTimestamp" in meta and meta.get("finalizers") == finalizers:
        return old
    new = _copy(old.obj)
    new["metadata"].setdefault("deletionTimestamp", ledger.now)
    new["metadata"]["finalizers"] = list(finalizers)
    return ledger.write(kind, key, new, old)


def _disown(ledger: Transaction, key: Key, owner: str) -> None:
    record = ledger.find(key)
    assert record is not None
    new = _copy(record.obj)
    left = [reference for reference in new["metadata"]["ownerReferences"] if reference.get("uid") != owner]
    new["metadata"]["ownerReferences"] = left
    if not left:
        del new["metadata"]["ownerReferences"]
    ledger.write(KINDS[key.kind], key, new, record)


def _others_live(ledger: Transaction, key: Key, record: Record, owner: str, going: Mapping[Key, int]) -> bool:
    return any(
        _living(ledger, other, key.namespace) and owner_key(other, key.namespace) not in going
        for other in record.obj["metadata"]["ownerReferences"]
        if other.get("uid") != owner
    )


def _living(ledger: Transaction, reference: Mapping[str, Any], namespace: str) -> bool:
    key = owner_key(reference, namespace)
    record = ledger.find(key) if key else None
    return record is not None and record.uid == reference.get("uid") and not _waiting(record)


def _waiting(record: Record) -> bool:
    """Whether it is deleted in the foreground: it only waits for what it owns."""
    meta = record.obj["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND_FINALIZER in meta.get("finalizers", ())


def _copy(obj: Object) -> Object:
    """A copy whose metadata may be changed."""
    return {**obj, "metadata": dict(obj["metadata"])}
