"""A store in front of another, which fails at will: away, conflicts, lost answers, broken watches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from isthmus.errors import Conflict, Expired, StoreUnavailable
from isthmus.resources.kinds import JOB, Kind
from isthmus.store.base import Change, Changes, Key, Page, Part, Propagation, Query, Record, Store


class FaultyStore:
    """A store in front of another: refuses, loses answers, is away."""

    whole_at_once = True

    def __init__(self, store: Store) -> None:
        self.real = store
        self.away = False
        self.conflicts = 0.0
        """Share of updates that are refused because somebody else was faster."""
        self.lost = 0.0
        """Share of writes that are made, and whose answer is lost."""
        self.chance = random.Random(1)  # noqa: S311 - the same faults each time
        self.updates: list[tuple[Key, str]] = []
        """Every update of a job that was made, with the phase it wrote."""
        self.blind = False
        """Whether no watch can begin."""
        self.repeats = 1
        """How often watches deliver each change."""
        self.lists = 0
        """How often somebody listed."""
        self.watched: list[int | None] = []
        """The versions that watches began at."""
        self._watches: set[_FaultyWatch] = set()

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")

    def _maybe_lost(self) -> None:
        if self.chance.random() < self.lost:
            raise StoreUnavailable("the answer was lost")

    async def open(self) -> None:
        """Nothing: the other one is open."""

    async def close(self) -> None:
        """Nothing: the other one stays open."""

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        """Keep a new object; perhaps the answer is lost."""
        self._reach()
        record = await self.real.create(kind, obj)
        self._maybe_lost()
        return record

    async def get(self, key: Key) -> Record:
        """The present version."""
        self._reach()
        return await self.real.get(key)

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        """Replace a part of an object; perhaps refused, perhaps the answer is lost."""
        self._reach()
        if self.chance.random() < self.conflicts:
            await asyncio.sleep(0)
            raise Conflict("somebody else was faster")
        record = await self.real.update(kind, obj, part)
        if kind is JOB:
            self.updates.append((record.key, record.obj["status"]["phase"]))
        self._maybe_lost()
        return record

    async def delete(
        self,
        key: Key,
        *,
        uid: str | None = None,
        version: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Record:
        """Delete an object."""
        self._reach()
        return await self.real.delete(key, uid=uid, version=version, propagation=propagation)

    async def list(
        self, query: Query, *, limit: int | None = None, continue_: str | None = None, most_bytes: int | None = None
    ) -> Page:
        """The objects that match."""
        self._reach()
        self.lists += 1
        return await self.real.list(query, limit=limit, continue_=continue_, most_bytes=most_bytes)

    @asynccontextmanager
    async def watch(
        self, query: Query, *, since: int | None = None, bookmarks: float | None = None
    ) -> AsyncIterator[Changes]:
        """Changes after a version, until the watch is broken."""
        self._reach()
        if self.blind:
            raise StoreUnavailable("the store answers, and reports no changes")
        self.watched.append(since)
        async with self.real.watch(query, since=since, bookmarks=bookmarks) as changes:
            watch = _FaultyWatch(changes, self)
            self._watches.add(watch)
            try:
                yield watch
            finally:
                self._watches.discard(watch)

    def disconnect(self, error: Exception | None = None) -> None:
        """Break every watch: with this error, or as if the store were away for a moment."""
        for watch in self._watches:
            watch.breaks(error or StoreUnavailable("the connection was lost"))

    def expire(self) -> None:
        """Notify everybody who watches that they must list again."""
        self.disconnect(Expired("changes in between are no longer kept; list again"))

    async def version(self) -> int:
        """The version of the latest change."""
        self._reach()
        return await self.real.version()


class _FaultyWatch:
    """A watch of a faulty store."""

    def __init__(self, changes: Changes, store: FaultyStore) -> None:
        self._changes, self._store = changes, store
        self._again: list[Change] = []
        self._broken: asyncio.Future[Change] = asyncio.get_running_loop().create_future()

    def breaks(self, error: Exception) -> None:
        """End with this error."""
        if not self._broken.done():
            self._broken.set_exception(error)

    def __aiter__(self) -> _FaultyWatch:
        return self

    async def __anext__(self) -> Change:
        if self._again:
            return self._again.pop()
        following = asyncio.ensure_future(anext(aiter(self._changes)))
        try:
            await asyncio.wait({following, self._broken}, return_when=asyncio.FIRST_COMPLETED)
            change = self._broken.result() if self._broken.done() else await following
        finally:
            following.cancel()
        self._again = [change] * (self._store.repeats - 1)
        return change

    def ready(self) -> list[Change]:
        """What waits; nothing, so that each change can fail."""
        return []
