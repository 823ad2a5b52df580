"""Live: notifies open pages that something they show has changed; they then ask for themselves anew.

One watch of the store per kind serves all pages, and runs from the first visit on. A page holds one stream of
server-sent events, says what it shows (`jobs`, `jobs/physics/train-7`, `sites`) and hears `changed`, without content:
what it may see is decided when it asks. The first few changes are reported at once, those that come fast together.

A page carries the mark of the moment it was made. If what it shows has changed since, the stream says so as it begins;
so nothing is missed, and a page that is as it should be is not fetched twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field

from isthmus._kit.ids import suffix
from isthmus.api.streams import KEEP_ALIVE, KEEP_ALIVE_SECONDS, event
from isthmus.resources.kinds import EXPERIMENT, JOB, KINDS
from isthmus.store.base import Change, Key, Store
from isthmus.store.feeding import Feed

from .index import Index, JobTable, experiment_row

TOGETHER = 0.25
"""Seconds between two notifications of one page, once it was notified `AT_ONCE` times in a row."""
AT_ONCE = 4
REMEMBERED = 2000
"""Changes that are kept, to show a page what happened since it was made."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a page shows: a kind, of some tenants (None: all), perhaps one object."""

    kind: str
    tenants: Collection[str] | None = None
    name: str = ""

    def covers(self, key: Key) -> bool:
        """Whether a change of this object matters."""
        return (
            key.kind == self.kind
            and (not self.name or key.name == self.name)
            and (self.tenants is None or not key.namespace or key.namespace in self.tenants)
        )


@dataclass(eq=False, slots=True)
class _Listener:
    topics: tuple[Topic, ...]
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Live:
    """Knows of every change, and who wants to hear of it."""

    def __init__(self, store: Store) -> None:
        self.jobs = JobTable(self._notify)
        self.experiments = Index(self._notify, experiment_row)
        self._feeds = (
            Feed(store, JOB, replace=lambda page: self.jobs.replace(page.records), change=self.jobs.change),
            Feed(
                store,
                EXPERIMENT,
                replace=lambda page: self.experiments.replace(page.records),
                change=self.experiments.change,
            ),
            *(
                Feed(store, kind, replace=lambda _: self._notify(None), change=self._notify_of, listing=False)
                for kind in KINDS.values()
                if kind.served and kind not in (JOB, EXPERIMENT)
            ),
        )
        self._listeners: set[_Listener] = set()
        self._started = False
        self._starting = asyncio.Lock()
        self._boot = suffix(9)
        self._count = 0
        self._past: deque[tuple[int, Key | None]] = deque(maxlen=REMEMBERED)

    @property
    def mark(self) -> str:
        """This moment, for a page that is made now."""
        return f"{self._boot}-{self._count}"

    async def start(self) -> None:
        """Begin to follow the store, the first time that it is asked for."""
        if self._started:
            return
        async with self._starting:
            if not self._started:
                try:
                    await asyncio.gather(*(feed.start() for feed in self._feeds))
                except BaseException:
                    await self.close()
                    raise
                self._started = True

    async def close(self) -> None:
        """Stop following."""
        await asyncio.gather(*(feed.close() for feed in self._feeds))

    async def events(self, topics: tuple[Topic, ...], mark: str = "") -> AsyncGenerator[bytes, None]:
        """The stream of one page."""
        listener = _Listener(topics)
        self._listeners.add(listener)
        if self._changed_since(mark, topics):
            listener.news.set()
        credit, last = float(AT_ONCE), time.monotonic()
        try:
            yield b"retry: 1000\n" + event({}, "ready")
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await listener.news.wait()
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                listener.news.clear()
                yield event({}, "changed")
                now = time.monotonic()
                credit, last = min(AT_ONCE, credit + (now - last) / TOGETHER) - 1, now
                if credit < 0:
                    await asyncio.sleep(TOGETHER)
        finally:
            self._listeners.discard(listener)

    def _changed_since(self, mark: str, topics: tuple[Topic, ...]) -> bool:
        boot, _, count = mark.partition("-")
        if boot != self._boot or not count.isascii() or not count.isdigit() or len(count) > 18:
            return True
        seen = int(count)
        if self._past and seen < self._past[0][0] - 1:
            return True
        return any(
            number > seen and (key is None or any(topic.covers(key) for topic in topics)) for number, key in self._past
        )

    def _notify(self, key: Key | None) -> None:
        self._count += 1
        self._past.append((self._count, key))
        for listener in self._listeners:
            if not listener.news.is_set() and (key is None or any(topic.covers(key) for topic in listener.topics)):
                listener.news.set()

    def _notify_of(self, change: Change) -> None:
        assert change.record is not None
        self._notify(_about(change.record.key, change.record.obj))
        change.record.shrink()


def _about(key: Key, obj: dict[str, object]) -> Key:
    """An event is reported as a change of the object that it is about."""
    about = obj.get("involvedObject")
    if key.kind != "Event" or not isinstance(about, dict):
        return key
    return Key(str(about.get("kind", "")), key.namespace, str(about.get("name", "")))
