"""Informers: the present state of one kind, kept equal to the store by a feed, with handlers that hear of every change.

Only the bytes are kept; an object is decoded when somebody looks. Handlers are synchronous and quick: they mark
what must be looked at and never decide. When the feed had to list again, the informer reports the difference, so a
handler never misses an object, though it may miss versions in between. A handler that fails over one object is logged
and counted; the other handlers and all other objects are not held up by it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from isthmus.metrics import count_task_failure
from isthmus.resources.kinds import Kind
from isthmus.store.base import Change, EventType, Key, Page, Record, Store
from isthmus.store.feeding import Feed

log = logging.getLogger(__name__)

Accept = Callable[[Record, "Record | None"], "Record | None"]
"""Given a new version and the one known before: what to show of it, or None to leave things as they are."""
Handler = Callable[[Record | None, Record | None], None]
"""Called with the old and the new record; one of them may be None (added, deleted)."""


class Informer:
    """A kind, as it is now."""

    def __init__(self, store: Store, kind: Kind, *, accept: Accept | None = None) -> None:
        self.kind = kind
        self._accept = accept
        self._feed = Feed(store, kind, replace=self._replace, change=self._take)
        self._records: dict[Key, Record] = {}
        self._own: set[Key] = set()
        self._handlers: list[Handler] = []

    def on_change(self, handler: Handler) -> None:
        """Hear of every change. Must be called before `run`."""
        self._handlers.append(handler)

    def get(self, key: Key) -> Record | None:
        """One object."""
        return self._records.get(key)

    def all(self) -> Iterable[Record]:
        """All objects."""
        return self._records.values()

    async def synced(self) -> None:
        """Wait until the first list is in."""
        await self._feed.synced()

    def note(self, record: Record) -> None:
        """Take note of a version that we ourselves just wrote, before the watch reports it."""
        self.learn(record)
        if (shown := self._records.get(record.key)) is not None and shown.version == record.version:
            self._own.add(record.key)

    def learn(self, record: Record) -> None:
        """Take note of a version that was read from the store, before the watch reports it.

        What the watch is past already is not noted: an object that is not here was deleted since.
        """
        if record.version > self._feed.version:
            self._note(record)

    def doubt(self, key: Key) -> None:
        """We are about to write this object: until the answer is here, the store may have more than is shown."""
        self._own.discard(key)

    def is_own(self, record: Record) -> bool:
        """Whether this is the last version that we know of, and we wrote it ourselves and it was confirmed.

        Of any other version the store may already have a later one that the watch has not reported yet.
        """
        return record.key in self._own and self._records[record.key].version == record.version

    def note_removed(self, record: Record) -> None:
        """Take note that our own write removed the object."""
        known = self._records.get(record.key)
        if known is not None and known.version <= record.version:
            self._remove(record)

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        await self._feed.run()

    def _replace(self, page: Page) -> None:
        if page.version < self._feed.version:  # the store was set back: what we know may never have been
            self._records, before = {}, self._records
            self._own.clear()
            for record in before.values():
                self._notify(record, None)
        seen = {record.key for record in page.records}
        for record in page.records:
            self._note(record)
        for gone in [r for r in self._records.values() if r.key not in seen and r.version <= page.version]:
            self._remove(gone)

    def _take(self, change: Change) -> None:
        assert change.record is not None  # a feed keeps bookmarks to itself
        if change.type is EventType.DELETED:
            self.note_removed(change.record)
        else:
            self._note(change.record)

    def _note(self, record: Record) -> None:
        if (known := self._records.get(record.key)) is None or known.version < record.version:
            self._put(record)

    def _put(self, record: Record) -> None:
        old = self._records.get(record.key)
        accepted = self._accepted(record, old)
        if accepted is None:
            if old is not None and old.uid != record.uid:
                self._remove(old)  # it is gone, whatever came in its place
            return
        self._records[record.key] = accepted
        self._own.discard(record.key)
        self._notify(old, accepted)

    def _remove(self, record: Record) -> None:
        old = self._records.pop(record.key, None)
        self._own.discard(record.key)
        if old is not None:
            self._notify(old, None)

    def _accepted(self, record: Record, old: Record | None) -> Record | None:
        if self._accept is None:
            return record
        try:
            return self._accept(record, old)
        except Exception:  # noqa: BLE001 - it cannot even be checked: nobody must see it
            self._failed("an object could not be checked", record)
            return None

    def _notify(self, old: Record | None, new: Record | None) -> None:
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:  # noqa: BLE001 - one broken object must not stop the others
                self._failed("a handler failed", new or old)

    def _failed(self, what: str, record: Record | None) -> None:
        log.exception(what, extra={"kind": self.kind.name, "key": str(record.key) if record else ""})
        count_task_failure(f"informer of {self.kind.plural}")
