"""Live: tells open pages that something they show has changed; they then ask for themselves anew.

One watch of the store per kind serves all pages, and runs from the first visit on. A page holds one stream of
server-sent events, says what it shows (`jobs`, `jobs/physics/train-7`, `sites`) and hears `changed`, without content:
what it may see is decided when it asks. Changes that come fast are told together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field

from isthmus.api.streams import KEEP_ALIVE, KEEP_ALIVE_SECONDS, event
from isthmus.errors import IsthmusError
from isthmus.identity.feeding import Feed
from isthmus.resources.kinds import JOB, KINDS, Kind
from isthmus.store.base import Key, Query, Store

from .index import JobIndex

logger = logging.getLogger(__name__)

TOGETHER = 0.25
"""Seconds between two tellings of one page."""
_PAUSE = 1.0
WATCHED = tuple(kind for kind in KINDS.values() if kind.served and kind is not JOB)


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
        self._store = store
        self.jobs = JobIndex(self._tell)
        self._feed = Feed(store, JOB, self.jobs.replace, self.jobs.change)
        self._listeners: set[_Listener] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Begin to follow the store, the first time that it is asked for."""
        if self._tasks:
            return
        async with self._starting:
            if not self._tasks:
                await self._feed.start()
                self._tasks = [
                    asyncio.create_task(self._follow(kind), name=f"console follows {kind.plural}") for kind in WATCHED
                ]

    async def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._feed.close()

    async def events(self, topics: tuple[Topic, ...]) -> AsyncGenerator[bytes, None]:
        """The stream of one page."""
        listener = _Listener(topics)
        self._listeners.add(listener)
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
                await asyncio.sleep(TOGETHER)
        finally:
            self._listeners.discard(listener)

    def _tell(self, key: Key | None) -> None:
        for listener in self._listeners:
            if not listener.news.is_set() and (key is None or any(topic.covers(key) for topic in listener.topics)):
                listener.news.set()

    async def _follow(self, kind: Kind) -> None:
        while True:
            try:
                async with self._store.watch(Query(kind), since=await self._store.version()) as changes:
                    self._tell(None)
                    async for change in changes:
                        if change.record is not None and self._listeners:
                            self._tell(_about(change.record.key, change.record.obj))
                            change.record.shrink()
            except IsthmusError as error:  # too far behind, or the store is away: begin anew
                logger.info("console begins to watch anew", extra={"kind": kind.name, "error": error.message})
            except Exception:
                logger.exception("console could not watch", extra={"kind": kind.name})
            await asyncio.sleep(_PAUSE)


def _about(key: Key, obj: dict[str, object]) -> Key:
    """An event is told as a change of the object that it is about."""
    about = obj.get("involvedObject")
    if key.kind != "Event" or not isinstance(about, dict):
        return key
    return Key(str(about.get("kind", "")), key.namespace, str(about.get("name", "")))
