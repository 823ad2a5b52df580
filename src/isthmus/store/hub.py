"""Watching: one hub notifies every watcher, in order, of the changes that concern it.

The store publishes entries after their commit. Watchers with the same query form a group, so that selectors are
evaluated once per group and not once per watcher. Each watcher has a bounded buffer; one that overruns it is
dropped with `Expired` and disturbs nobody else. The latest entries stay in memory, so that most watches start
without touching the database; older ones are read from the log.

A watcher is registered before its past is read. What happens meanwhile waits in its buffer, so nothing is missed
and nothing is reported twice.

Waking hundreds of watchers for every single change would cost more than the change. The first change after a
pause wakes them at once; the next round waits as long as the last one was expensive.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import Protocol

from isthmus.errors import Expired
from isthmus.resources.frame.selectors import Selector
from isthmus.resources.kinds import Kind

from .base import Change, EventType, Page, Query, Record
from .entries import Entry
from .former_tenants import FormerTenants, tenants_of
from .settings import StoreSettings

_CHUNK = 500
_LONGEST_PAUSE = 0.05


class Past(Protocol):
    """Where a hub finds what it does not hold itself."""

    async def present(self, query: Query) -> Page:
        """All objects that match, at one version; or a page with `continue_`, if they have more than
        `settings.buffer_bytes`."""
        ...

    async def past(self, query: Query, after: int, until: int, limit: int) -> Sequence[Entry]:
        """The first entries of the kind in that range of versions: all, or `limit`, or as many as make up
        `settings.piece_bytes`; raises Expired when some are gone."""
        ...

    async def version(self) -> int:
        """The version of the latest committed change."""
        ...

    async def tenant_removed(self, name: str, after: int) -> bool:
        """Whether a tenant of this name was removed after a version, as far as the log reaches."""
        ...


class _Group:
    """Watchers with the same query."""

    __slots__ = ("fields", "labels", "members")

    def __init__(self, query: Query) -> None:
        self.labels: Selector = query.labels
        self.fields: Selector = query.fields
        self.members: set[Watch] = set()


_GroupKey = tuple[Selector, Selector]
_Place = tuple[str, str | None]


class Hub:
    """All watchers, and the latest entries."""

    def __init__(self, past: Past, settings: StoreSettings, former: FormerTenants | None = None) -> None:
        self.version = 0
        """The latest version that was published."""
        self.past = past
        self.settings = settings
        self._groups: dict[_Place, dict[_GroupKey, _Group]] = {}
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0
        self._kept_after = 0
        self._touched: dict[str, int] = {}
        self.former = former or FormerTenants()
        self._awake: set[Watch] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0

    def watch(self, query: Query, since: int | None, bookmarks: float | None) -> Watch:
        """A watch, to be entered."""
        return Watch(self, query, since, bookmarks)

    def publish(self, entries: Iterable[Entry]) -> None:
        """Report committed entries, in order."""
        for entry in entries:
            key = entry.record.key
            self._remember(entry)
            self.version = entry.record.version
            self._touched[key.kind] = self.version
            self.former.note(entry)
            for place in ((key.kind, None), (key.kind, key.namespace)):
                for group in list(self._groups.get(place, {}).values()):
                    change = entry.seen(group.labels, group.fields)
                    if change is not None:
                        self._deliver(group, change, entry.record)
        self._wake_soon()

    def advance(self, version: int) -> None:
        """Nothing that concerns us happened up to this version."""
        self.version = max(self.version, version)

    def touched(self, kind: str) -> int:
        """The version of the latest change of a kind, as far as known since the start."""
        return self._touched.get(kind, 0)

    def reset(self, version: int, reason: str) -> None:
        """Begin anew at a version, when the entries in between cannot be had: everybody must list again."""
        for watcher in self._watchers():
            watcher.fail(Expired(reason))
        self._recent.clear()
        self._recent_bytes = 0
        self._touched = dict.fromkeys(self._touched, version)
        self.version = version

    def close(self) -> None:
        """End every watch."""
        for watcher in self._watchers():
            watcher.fail(Expired("the store was closed; list again when it is back"))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def recent(self, after: int) -> list[Entry] | None:
        """The entries after a version up to the present, or None when some are no longer in memory."""
        if after >= self.version:
            return []
        if not self._recent or after < self._kept_after:
            return None
        start = bisect_right(self._recent, after, key=lambda entry: entry.version)
        return list(islice(self._recent, start, None))

    def add(self, watcher: Watch) -> None:
        """From now on, notify this watcher."""
        groups = self._groups.setdefault((watcher.query.kind.name, watcher.query.namespace), {})
        key = (watcher.query.labels, watcher.query.fields)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(watcher.query)
        group.members.add(watcher)

    def discard(self, watcher: Watch) -> None:
        """Forget this watcher."""
        self._awake.discard(watcher)
        place = (watcher.query.kind.name, watcher.query.namespace)
        key = (watcher.query.labels, watcher.query.fields)
        group = self._groups.get(place, {}).get(key)
        if group is None:
            return
        group.members.discard(watcher)
        if not group.members:
            del self._groups[place][key]
            if not self._groups[place]:
                del self._groups[place]

    def count(self) -> int:
        """How many watchers there are."""
        return len(self._watchers())

    def _watchers(self) -> list[Watch]:
        return [w for groups in self._groups.values() for group in groups.values() for w in group.members]

    def _remember(self, entry: Entry) -> None:
        if not self._recent:
            self._kept_after = self.version
        self._recent.append(entry)
        self._recent_bytes += len(entry.record.data)
        while len(self._recent) > self.settings.recent_changes or (
            self._recent_bytes > self.settings.recent_bytes and len(self._recent) > 1
        ):
            gone = self._recent.popleft()
            self._kept_after = gone.version
            self._recent_bytes -= len(gone.record.data)

    def _deliver(self, group: _Group, change: Change, record: Record) -> None:
        waiting = (change, len(record.data))
        slow = [watcher for watcher in group.members if not watcher.put(waiting)]
        for watcher in slow:
            watcher.fail(Expired("the watcher reads more slowly than changes happen; list again and watch from there"))
        self._awake.update(group.members)

    def _wake_soon(self) -> None:
        if not self._awake or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._quiet_until:
            self._wake()
        else:
            self._timer = loop.call_at(self._quiet_until, self._wake)

    def _wake(self) -> None:
        self._timer = None
        woken = sum([watcher.wake() for watcher in self._awake])
        self._awake.clear()
        pause = min(woken * self.settings.wake_cost, _LONGEST_PAUSE)
        self._quiet_until = asyncio.get_running_loop().time() + pause


class Watch:
    """One watcher: enter it, iterate over it, leave it."""

    def __init__(self, hub: Hub, query: Query, since: int | None, bookmarks: float | None) -> None:
        self.query = query
        self._hub = hub
        self._since = since
        self._interval = bookmarks
        self._floor = 0
        self._backlog: deque[Change] = deque()
        self._replayed = self._replay_until = 0
        self._buffer: deque[tuple[Change, int]] = deque()
        self._size = 0
        self._most_changes, self._most_bytes = hub.settings.buffer_changes, hub.settings.buffer_bytes
        self._waiter: asyncio.Future[None] | None = None
        self._error: Expired | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Watch:
        self._hub.add(self)
        try:
            await self._begin()
        except BaseException:
            self._hub.discard(self)
            raise
        self._schedule_bookmark()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._backlog.clear()
        self._buffer.clear()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Change:
        while True:
            if self._error is not None:
                raise self._error
            if self._backlog:
                return self._backlog.popleft()
            if self._replayed < self._replay_until:
                await self._replay()
            elif self._buffer:
                change, size = self._buffer.popleft()
                self._size -= size
                return change
            else:
                await self._wait()

    def ready(self) -> list[Change]:
        """Take every change that can be had without waiting."""
        if self._error is not None:
            return []
        changes = list(self._backlog)
        self._backlog.clear()
        if self._replayed >= self._replay_until:
            changes += [change for change, _ in self._buffer]
            self._buffer.clear()
            self._size = 0
        return changes

    def put(self, waiting: tuple[Change, int]) -> bool:
        """Let a change (with its size in bytes) wait for the reader; false when too many wait already."""
        if waiting[0].version > self._floor:
            self._buffer.append(waiting)
            self._size += waiting[1]
        return len(self._buffer) <= self._most_changes and self._size <= self._most_bytes

    def wake(self) -> bool:
        """Let the reader go on, if it waits."""
        if self._waiter is None or self._waiter.done():
            return False
        self._waiter.set_result(None)
        return True

    def fail(self, error: Expired) -> None:
        """End this watch."""
        self._error = error
        self._backlog.clear()
        self._buffer.clear()
        self._size = 0
        self._hub.discard(self)
        self.wake()

    async def _begin(self) -> None:
        hub = self._hub
        if self._since is None:
            page = await hub.past.present(self.query)
            if page.continue_ is not None:
                raise Expired("there is too much to begin a watch with; list in pages, then watch from that version")
            self._floor = page.version
            # What waits already may be older than what was listed.
            self._buffer = deque(waiting for waiting in self._buffer if waiting[0].version > page.version)
            self._size = sum(size for _, size in self._buffer)
            self._backlog.extend(Change(EventType.ADDED, record.version, record) for record in page.records)
            return
        self._floor, known = self._since, hub.version
        if self._since > known and self._since > (real := await hub.past.version()):
            raise Expired(f"version {self._since} is in the future (the latest is {real}); list again")
        recent = hub.recent(self._since) if self._since <= known else []
        await self._check_tenant(logged=recent is None)
        if recent is not None:
            self._backlog.extend(self._seen(recent))
            return
        self._replayed, self._replay_until = self._since, known
        await self._replay()

    async def _check_tenant(self, *, logged: bool) -> None:
        """Refuse the past of a former tenant (`former_tenants`). What is not in memory is asked of the log."""
        hub, since = self._hub, self._since or 0
        for name in tenants_of(self.query):
            if hub.former.removed_after(name, since) or (logged and await hub.past.tenant_removed(name, since)):
                raise Expired(f"tenant {name!r} was removed after version {since}, and its past with it; list again")

    async def _replay(self) -> None:
        """Read the next entries of the past from the log."""
        entries = await self._hub.past.past(self.query, self._replayed, self._replay_until, _CHUNK)
        cut = (
            len(entries) == _CHUNK or sum(len(entry.record.data) for entry in entries) >= self._hub.settings.piece_bytes
        )
        self._replayed = entries[-1].version if cut else self._replay_until
        self._backlog.extend(self._seen(entries))

    def _seen(self, entries: Iterable[Entry]) -> Iterable[Change]:
        kind, namespace = self.query.kind.name, self.query.namespace
        for entry in entries:
            key = entry.record.key
            if key.kind == kind and (namespace is None or key.namespace == namespace):
                change = entry.seen(self.query.labels, self.query.fields)
                if change is not None:
                    yield change

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _schedule_bookmark(self) -> None:
        if self._interval is not None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._bookmark)

    def _bookmark(self) -> None:
        """Everything up to the hub's version was put into the buffer before this bookmark."""
        version = max(self._hub.version, self._floor)
        if self._error is None:
            if not (self._buffer and self._buffer[-1][0].type is EventType.BOOKMARK):
                self._buffer.append((bookmark(self.query.kind, version), 0))
            self.wake()
            self._schedule_bookmark()


def bookmark(kind: Kind, version: int) -> Change:
    """A bookmark."""
    return Change(EventType.BOOKMARK, version, None, kind)
