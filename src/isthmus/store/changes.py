"""Every write, decided: operations in, log entries out. Pure; both stores use it.

A `Transaction` looks at the present through a `CommittedView`, applies operations one after the other, and holds what
is to be written: the log entries in order, the last entry of each object, and who owns whom. An operation that fails
leaves no trace in it, so that the others of the batch go on.

What follows from a deletion for owners and owned objects is decided in `ownership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import orjson

from isthmus._kit.ids import new_uid
from isthmus.errors import AlreadyExists, Cause, Conflict, Invalid
from isthmus.resources.kinds import KINDS, Kind

from . import ownership
from .base import EventType, Key, Object, Part, Propagation, Record, missing
from .entries import Entry, Selectable, encode_object, selectable

# What callers may send and the store decides, and what Kubernetes clients send and nobody keeps.
_OURS = frozenset({
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink",
})  # fmt: skip


class CommittedView(Protocol):
    """The committed objects, as a transaction sees them."""

    def find(self, key: Key) -> Record | None:
        """The object at a key."""
        ...

    def owned(self, uid: str) -> Iterable[Key]:
        """The objects that name this uid as an owner."""
        ...


class TooMany(Exception):
    """An operation touches more objects than the caller wanted to do in one go."""


@dataclass(frozen=True, slots=True)
class Create:
    """Keep a new object."""

    kind: Kind
    key: Key
    obj: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Update:
    """Replace a part of an object."""

    kind: Kind
    key: Key
    obj: Mapping[str, Any]
    part: Part


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it is the one meant."""

    key: Key
    uid: str | None
    version: int | None
    propagation: Propagation


Operation = Create | Update | Delete


def key_of(kind: Kind, obj: Mapping[str, Any]) -> Key:
    """Where an object belongs; raises Invalid when it does not say."""
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping):
        raise _invalid("metadata", f"a {kind.name} needs metadata with a name")
    name = _word(kind, meta, "name")
    return Key(kind.name, _word(kind, meta, "namespace") if kind.namespaced else "", name)


def _word(kind: Kind, meta: Mapping[str, Any], field: str) -> str:
    word = meta.get(field)
    if isinstance(word, str) and word and word.isprintable() and " " not in word:
        return word
    raise _invalid(
        f"metadata.{field}",
        f"{word!r} is not a {field} for a {kind.name}; set metadata.{field} to a word without spaces",
    )


class Transaction:
    """One transaction: what it has decided so far."""

    def __init__(self, view: CommittedView, version: int, now: str) -> None:
        self.version = version
        """The version of the latest change, including those made here."""
        self.now = now
        self.entries: list[Entry] = []
        """For the log, in order."""
        self.latest: dict[Key, Entry] = {}
        """The last entry of every object touched: what its row becomes."""
        self.links: dict[tuple[str, Key], bool] = {}
        """Owner's uid and owned object: true when the link is new, false when it is gone."""
        self.size = 0
        """Bytes of the entries."""
        self._view = view
        self._candidates: dict[str, set[Key]] = {}
        self._undo: list[tuple[Key, Entry | None]] = []
        self._undo_links: list[tuple[tuple[str, Key], bool | None]] = []
        self._limit: int | None = None

    def apply(self, operation: Operation, limit: int | None = None) -> Record:
        """Decide one operation. With a limit, raises TooMany when it makes more changes than that."""
        before = len(self.entries), self.version, self.size
        self._undo.clear()
        self._undo_links.clear()
        self._limit = limit
        try:
            match operation:
                case Create():
                    return self._create(operation)
                case Update():
                    return self._update(operation)
                case Delete():
                    return self._delete(operation)
        except BaseException:
            self._roll_back(*before)
            raise

    def find(self, key: Key) -> Record | None:
        """The object at a key, as it is after the operations so far."""
        entry = self.latest.get(key)
        if entry is None:
            return self._view.find(key)
        return None if entry.after is None else entry.record

    def owned(self, uid: str) -> list[Key]:
        """The objects that name this uid as an owner, after the operations so far."""
        return list(self._owned(uid))

    def owns_any(self, uid: str) -> bool:
        """Whether there is such an object."""
        return next(self._owned(uid), None) is not None

    def _owned(self, uid: str) -> Iterator[Key]:
        staged = self._candidates.get(uid, ())
        for key in chain(sorted(staged), (key for key in self._view.owned(uid) if key not in staged)):
            if (found := self.find(key)) and uid in ownership.owner_uids(found.obj):
                yield key

    def write(self, kind: Kind, key: Key, obj: Object, old: Record | None) -> Record:
        """Make `obj` (whose metadata is ours to change) the new version of the object."""
        return self._stage(EventType.MODIFIED if old else EventType.ADDED, kind, key, obj, old)

    def remove(self, kind: Kind, key: Key, obj: Object, old: Record) -> Record:
        """Remove the object; `obj` is its last state. What follows for others is `ownership`'s."""
        return self._stage(EventType.DELETED, kind, key, obj, old)

    def _create(self, op: Create) -> Record:
        if self.find(op.key) is not None:
            raise AlreadyExists(f"{op.key} exists already; choose another name, or update it")
        meta = _metadata(op.key, op.obj["metadata"], new_uid(), self.now, 1)
        new = _assembled(op.kind, meta, op.obj)
        ownership.check_owners(self, op.key, meta.get("ownerReferences", ()), ())
        return self.write(op.kind, op.key, new, None)

    def _update(self, op: Update) -> Record:
        old = self.find(op.key)
        if old is None:
            raise missing(op.key, "; it may have been deleted meanwhile")
        sent = op.obj["metadata"]
        _require_same(old, sent.get("uid"), sent.get("resourceVersion"))
        was = old.obj
        new = _updated(op, was)
        meta, was_meta = new["metadata"], was["metadata"]
        finalizers = meta.get("finalizers", ())
        if "deletionTimestamp" in was_meta and (added := set(finalizers) - set(was_meta.get("finalizers", ()))):
            names = ", ".join(sorted(added))
            raise _invalid("metadata.finalizers", f"{op.key} is being deleted; finalizers cannot be added ({names})")
        if meta.get("ownerReferences") != was_meta.get("ownerReferences"):
            ownership.check_owners(self, op.key, meta.get("ownerReferences", ()), was_meta.get("ownerReferences", ()))
        if not _differ(new, was):
            return old
        if new.get("spec") is not was.get("spec") and _differ(new.get("spec"), was.get("spec")):
            meta["generation"] = was_meta.get("generation", 1) + 1
        if "deletionTimestamp" in meta and not finalizers:
            return ownership.remove(self, op.kind, op.key, new, old)
        return self.write(op.kind, op.key, new, old)

    def _delete(self, op: Delete) -> Record:
        old = self.find(op.key)
        kind = KINDS.get(op.key.kind)
        if old is None or kind is None:
            raise missing(op.key, "; it may have been deleted already")
        _require_same(old, op.uid, op.version)
        return ownership.delete(self, kind, op.key, old, op.propagation)

    def _stage(self, type_: EventType, kind: Kind, key: Key, obj: Object, old: Record | None) -> Record:
        if self._limit is not None and len(self._undo) >= self._limit:
            raise TooMany
        version = self.version + 1
        meta = obj["metadata"]
        meta["resourceVersion"] = str(version)
        try:
            data = encode_object(obj)
        except TypeError as error:  # not JSON: nested too deep, a number beyond 64 bits, a broken character
            raise Invalid(f"{key} cannot be written as JSON: {error}") from None
        previous = self.latest.get(key)
        before = previous.after if previous else selectable(kind, old.obj) if old else None
        after = _copied(selectable(kind, obj)) if type_ is not EventType.DELETED else None
        if b"\\u0000" in data:
            _refuse_nul(key, after)
        record = Record(key, meta["uid"], version, data)
        entry = Entry(type_, record, before, after)
        self._link(key, ownership.owner_uids(old.obj) if old else (), ownership.owner_uids(obj) if after else ())
        self._undo.append((key, previous))
        self.latest[key] = entry
        self.entries.append(entry)
        self.version = version
        self.size += len(data)
        return record

    def _link(self, key: Key, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        if before == after:
            return
        for uid in {*before, *after}:
            if (uid in before) != (uid in after):
                self._undo_links.append(((uid, key), self.links.get((uid, key))))
                self.links[uid, key] = uid in after
                self._candidates.setdefault(uid, set()).add(key)

    def _roll_back(self, entries: int, version: int, size: int) -> None:
        del self.entries[entries:]
        self.version, self.size = version, size
        for key, previous in reversed(self._undo):
            if previous is None:
                del self.latest[key]
            else:
                self.latest[key] = previous
        for link, state in reversed(self._undo_links):
            if state is None:
                del self.links[link]
            else:
                self.links[link] = state


def _require_same(old: Record, uid: Any, version: Any) -> None:
    if uid and uid != old.uid:
        raise Conflict(
            f"{old.key} is another object than the one meant (its uid is {old.uid}, not {uid}); read it again"
        )
    if version in (None, "", 0, "0"):
        return
    if str(version) != str(old.version):
        if not str(version).isdecimal():
            raise _invalid("metadata.resourceVersion", f"{version!r} is not a version; send the one that was read")
        raise Conflict(
            f"{old.key} was changed since version {version} was read (it is at {old.version}); "
            "read it again and apply the change to that"
        )


def _metadata(key: Key, sent: Mapping[str, Any], uid: str, created: str, generation: int) -> Object:
    meta: Object = {"name": key.name}
    if key.namespace:
        meta["namespace"] = key.namespace
    meta["uid"] = uid
    meta["resourceVersion"] = ""
    meta["generation"] = generation
    meta["creationTimestamp"] = created
    meta.update((name, value) for name, value in sent.items() if value and name not in _OURS)
    return meta


def _assembled(kind: Kind, meta: Object, sent: Mapping[str, Any]) -> Object:
    new: Object = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    new.update((name, value) for name, value in sent.items() if name not in new)
    return new


def _updated(op: Update, was: Object) -> Object:
    """The object after an update, with the version it had."""
    was_meta = was["metadata"]
    if op.part is Part.STATUS:
        new = {**was, "metadata": dict(was_meta)}
        new.pop("status", None)
    else:
        meta = _metadata(
            op.key, op.obj["metadata"], was_meta["uid"], was_meta["creationTimestamp"], was_meta.get("generation", 1)
        )
        meta["resourceVersion"] = was_meta["resourceVersion"]
        if "deletionTimestamp" in was_meta:
            meta["deletionTimestamp"] = was_meta["deletionTimestamp"]
        new = _assembled(op.kind, meta, op.obj)
    status = was.get("status") if op.part is Part.SPEC else op.obj.get("status")
    if status is not None:
        new["status"] = status
    else:
        new.pop("status", None)
    return new


def _differ(one: Any, other: Any) -> bool:
    """Whether they differ as JSON. Python alone takes 1, 1.0 and true for the same."""
    if one != other:
        return True
    try:
        return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) != orjson.dumps(other, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return True


def _copied(state: Selectable) -> Selectable:
    return Selectable(dict(state.labels), state.fields)


def _refuse_nul(key: Key, state: Selectable | None) -> None:
    """No NUL where databases look: PostgreSQL takes none in text."""
    texts = [*key, *(part for pairs in state or () for item in pairs.items() for part in item)]
    if any("\0" in str(text) for text in texts):
        raise _invalid("metadata", f"{str(key)!r} has a NUL character in its name, a label or a selectable field")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(message, causes=(Cause(field, message),))
