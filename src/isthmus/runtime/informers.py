"""Informers: the present state of one kind, kept by list and watch, with handlers that hear of every change.

Only the bytes are kept; an object is decoded when somebody looks. Handlers are synchronous and quick: they mark
what must be looked at and never decide. When the watch expires or the store fails, the informer lists again and
tells the difference, so a handler never misses an object, though it may miss versions in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from isthmus.errors import Expired, IsthmusError
from isthmus.resources.kinds import Kind
from isthmus.store.base import Change, EventType, Key, Query, Record, Store

log = logging.getLogger(__name__)

Accept = Callable[[Record, "Record | None"], "Record | None"]
"""Given a new version and the one known before: what to show of it, or None to leave things as they are."""
Handler = Callable[[Record | None, Record | None], None]
"""Called with the old and the new record; one of them may be None (added, deleted)."""


class Informer:
    """A kind, as it is now."""

    def __init__(self, store: Store, kind: Kind, *, retry: float = 1.0, accept: Accept | None = None) -> None:
        self.kind = kind
        self._accept = accept
        self._store = store
        self._retry = retry
        self._records: dict[Key, Record] = {}
        self._reached = 0
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()

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
        await self._synced.wait()

    def note(self, record: Record) -> None:
        """Take note of a version that we ourselves just wrote, before the watch tells.

        What the watch is past already is not noted: an object that is not here was deleted since.
        """
        if record.version > self._reached:
            self._note(record)

    def note_removed(self, record: Record) -> None:
        """Take note that our own write removed the object."""
        known = self._records.get(record.key)
        if known is not None and known.version <= record.version:
            self._remove(record)

    async def run(self) -> None:
        """Keep up with the store until cancelled."""
        while True:
            try:
                version = await self._list()
                self._synced.set()
                await self._watch(version)
            except Expired:
                log.info("watch expired, listing again", extra={"kind": self.kind.name})
            except IsthmusError as error:
                log.warning("store did not answer", extra={"kind": self.kind.name, "error": str(error)})
                await asyncio.sleep(self._retry)

    async def _list(self) -> int:
        page = await self._store.list(Query(self.kind))
        seen = {record.key for record in page.records}
        for record in page.records:
            self._note(record)
        for gone in [r for r in self._records.values() if r.key not in seen and r.version <= page.version]:
            self._remove(gone)
        self._reached = page.version
        return page.version

    async def _watch(self, version: int) -> None:
        async with self._store.watch(Query(self.kind), since=version) as changes:
            async for change in changes:
                self._take(change)

    def _take(self, change: Change) -> None:
        if change.record is None:
            return
        if change.type is EventType.DELETED:
            self.note_removed(change.record)
        else:
            self._note(change.record)
        self._reached = change.version

    def _note(self, record: Record) -> None:
        if (known := self._records.get(record.key)) is None or known.version < record.version:
            self._put(record)

    def _put(self, record: Record) -> None:
        old = self._records.get(record.key)
        if self._accept is not None:
            if (accepted := self._accept(record, old)) is None:
                if old is not None and old.uid != record.uid:
                    self._remove(old)  # it is gone, whatever came in its place
                return
            record = accepted
        self._records[record.key] = record
        for handler in self._handlers:
            handler(old, record)

    def _remove(self, record: Record) -> None:
        old = self._records.pop(record.key, None)
        if old is not None:
            for handler in self._handlers:
                handler(old, None)
