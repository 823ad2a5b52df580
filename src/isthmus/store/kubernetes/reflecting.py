"""Following one kind: list once, then one watch for all who watch here, which go through the hub.

The state known here says how an object looked before each change, so that watchers with selectors are notified right.
A watch that ends or breaks goes on from the last version heard, bookmarks included. A watch that is silent for
longer than the server lets pass between two bookmarks is taken for dead. When the server no longer has the changes
in between (410), the kind is listed anew and everybody who watches must do the same.

While the server does not answer, or does not know the kind any more, nothing is reported and nothing is forgotten:
not being able to look is not the same as there being nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from isthmus.errors import Expired, IsthmusError
from isthmus.kubernetes.client import KubernetesClient
from isthmus.resources.kinds import Kind
from isthmus.store.base import EventType, Key, Page, Query, Record
from isthmus.store.entries import Entry, Selectable, selectable
from isthmus.store.hub import Hub
from isthmus.store.settings import StoreSettings

from .shaping import incoming, path_of, selection

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_WATCH_FOR = 300
ListAll = Callable[[Query], Awaitable[Page]]


class Reflector:
    """One kind, as the server reports it."""

    def __init__(self, api: KubernetesClient, kind: Kind, hub: Hub, settings: StoreSettings, list_all: ListAll) -> None:
        self.kind, self.hub = kind, hub
        self._api, self._settings, self._list_all = api, settings, list_all
        self._known: dict[Key, Record] = {}
        self._ahead: dict[Key, Record] = {}
        self._synced = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[Record]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._run(), name=f"store-reflector-{self.kind.plural}")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.hub.close()

    async def synced(self) -> None:
        """Wait until the kind was listed once."""
        await self._synced.wait()

    def known(self, key: Key) -> Record | None:
        """The latest version heard of or written here, if any."""
        return self._ahead.get(key) or self._known.get(key)

    def note(self, record: Record) -> None:
        """Take note of a version that the server just answered with, until the watch is past it."""
        if record.version > self.hub.version:
            self._ahead[record.key] = record

    def removal(self, uid: str) -> asyncio.Future[Record]:
        """Resolved when the object is reported to be gone, with its last state and the version of its removal."""
        return self._waiting.setdefault(uid, asyncio.get_running_loop().create_future())

    def stop_waiting(self, uid: str) -> None:
        """Nobody waits for this removal any more."""
        self._waiting.pop(uid, None)

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if not self._synced.is_set():
                    await self._list()
                await self._watch()
                pause = _FIRST_PAUSE
            except Expired as error:
                log.info("store.watch_expired kind=%s why=%s", self.kind.name, error)
                self._synced.clear()
                continue
            except IsthmusError as error:
                pause = max(pause, error.retry_after or 0.0)
                log.warning("store.watch_failed kind=%s retry_in=%.1fs error=%s", self.kind.name, pause, error)
            except Exception:
                log.exception("store.watch_failed kind=%s", self.kind.name)
                self._synced.clear()
            # Replicas that lost the same server do not come back all at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 2, _LONGEST_PAUSE)
            await self._check_history()

    async def _check_history(self) -> None:
        """A cluster restored from a backup may be behind what we have reported: then everything is listed anew."""
        try:
            answer = await self._api.get(path_of(self.kind, None), self.kind.plural, {"limit": 1})
        except IsthmusError:
            return  # it does not answer, or does not know the kind: the next round says so
        if int(answer["metadata"]["resourceVersion"]) < self.hub.version:
            self._synced.clear()

    async def _list(self) -> None:
        page = await self._list_all(Query(self.kind))
        self._known = {record.key: record for record in page.records}
        self._ahead.clear()
        self.hub.reset(page.version, "changes in between are no longer kept; list again")
        self._synced.set()

    async def _watch(self) -> None:
        params: dict[str, Any] = {
            **selection(Query(self.kind)),
            "resourceVersion": str(self.hub.version),
            "timeoutSeconds": random.randint(_WATCH_FOR, 2 * _WATCH_FOR),  # noqa: S311
        }
        events = self._api.events(path_of(self.kind, None), params, silence=self._settings.silence)
        async with contextlib.aclosing(events):
            await self._take(events)

    async def _take(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        async for type_, obj in events:
            if type_ == EventType.BOOKMARK:
                self.hub.advance(int(obj["metadata"]["resourceVersion"]))
            else:
                self._notify(EventType(type_), incoming(self.kind, obj))

    def _notify(self, type_: EventType, record: Record) -> None:
        if record.version <= self.hub.version:
            return
        if (ahead := self._ahead.get(record.key)) is not None and ahead.version <= record.version:
            del self._ahead[record.key]
        old = self._known.get(record.key)
        before = self._seen(old) if old is not None else None
        if type_ is EventType.DELETED:
            self._known.pop(record.key, None)
            self.hub.publish([Entry(type_, record, before, None)])
            if (waiter := self._waiting.pop(record.uid, None)) is not None and not waiter.done():
                waiter.set_result(record)
            return
        self._known[record.key] = record
        type_ = EventType.ADDED if old is None else EventType.MODIFIED
        self.hub.publish([Entry(type_, record, before, self._seen(record))])
        record.shrink()

    def _seen(self, record: Record) -> Selectable:
        state = selectable(self.kind, record.obj)
        return Selectable(dict(state.labels), state.fields)
