"""One entry of the change log, and how a watcher sees it.

An entry knows what selectors saw of the object before and after. From this follows, for any query, whether the
object was added to it, changed in it, or left it. The `Change` that comes out is made once and shared by all
watchers that see the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from isthmus.resources.frame.selectors import Selector
from isthmus.resources.kinds import Kind

from .base import Change, EventType, Key, Object, Record


class Selectable(NamedTuple):
    """What selectors see of one version of an object."""

    labels: dict[str, str]
    fields: dict[str, str]


def selectable(kind: Kind, obj: Mapping[str, Any]) -> Selectable:
    """What selectors see of an object, name and namespace apart: the key has these."""
    return Selectable(obj["metadata"].get("labels") or {}, kind.selectable(obj))


class Entry:
    """One change of one object: an entry of the log."""

    __slots__ = ("_changes", "after", "before", "record", "type")

    def __init__(
        self, type_: EventType, record: Record, before: Selectable | None = None, after: Selectable | None = None
    ) -> None:
        self.type = type_
        self.record = record
        """The new version; of a deletion, the last state under the version of the deletion."""
        self.before = before
        self.after = after
        self._changes: dict[EventType, Change] = {}

    @property
    def version(self) -> int:
        """The version this change made."""
        return self.record.version

    def seen(self, labels: Selector, fields: Selector) -> Change | None:
        """The change as a query with these selectors sees it; None when it does not concern it."""
        if not (labels or fields):
            return self._as(self.type)
        was = self.before is not None and self._matches(self.before, labels, fields)
        is_now = self.after is not None and self._matches(self.after, labels, fields)
        if is_now:
            return self._as(EventType.MODIFIED if was else EventType.ADDED)
        return self._as(EventType.DELETED) if was else None

    def _as(self, type_: EventType) -> Change:
        change = self._changes.get(type_)
        if change is None:
            change = self._changes[type_] = Change(type_, self.record.version, self.record)
        return change

    def _matches(self, state: Selectable, labels: Selector, fields: Selector) -> bool:
        if not labels.matches(state.labels):
            return False
        if not fields:
            return True
        key: Key = self.record.key
        return fields.matches({**state.fields, "metadata.name": key.name, "metadata.namespace": key.namespace})


def encode_state(state: Selectable | None) -> bytes | None:
    """As the log keeps it."""
    return None if state is None else orjson.dumps(tuple(state))


def decode_state(data: bytes | None) -> Selectable | None:
    """As it was before `encode_state`."""
    return None if data is None else Selectable(*orjson.loads(data))


def encode_object(obj: Object) -> bytes:
    """An object as it is kept and served."""
    return orjson.dumps(obj)
