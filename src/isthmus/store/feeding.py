"""Feed: the one way to follow a kind in the store, for informers, identity, the console and the API.

It lists, then watches from the listed version. What can go wrong, and what it does then:

- The version is too old, or the reader was too slow (`Expired`): it lists again, at once the first time, with pauses
  when that happens again before anything else arrived.
- The store does not answer, or the watch ends: it watches again from the version that it had reached, after a pause
  that doubles. What was known stays known meanwhile: not to be able to look is not the same as there being nothing.
- Whoever is fed raises something unexpected: it is logged and counted, and everything is listed again.
- A change that was delivered already (its version is not newer) is dropped.

Its task therefore ends by cancellation only. A feed with `listing=False` is for those who only need to know that
something changed: nothing is listed, and `replace` gets an empty page whenever changes may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from isthmus.errors import Expired, IsthmusError
from isthmus.metrics import count_task_failure
from isthmus.resources.kinds import Kind

from .base import Change, Page, Query, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """How a feed follows the store."""

    bookmarks: float = 10.0
    """Seconds between two bookmarks, so that the version reached stays young although nothing happens."""
    first_pause: float = 0.05
    """Seconds before the store is asked again after a failure. Most failures pass within milliseconds."""
    longest_pause: float = 5.0
    """Seconds that the pause grows to: a store that comes back is noticed within these."""


class Feed:
    """One kind, from the store to whoever keeps something equal to it."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        *,
        replace: Callable[[Page], None],
        change: Callable[[Change], None],
        listing: bool = True,
        settings: FeedSettings | None = None,
    ) -> None:
        """`replace` is called with everything there is after each list, `change` with each later change, in order;
        bookmarks are not passed on. Both are quick and synchronous."""
        self._store, self._query = store, Query(kind)
        self._replace, self._change, self._listing = replace, change, listing
        self._settings = settings or FeedSettings()
        self._version = 0
        self._current = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """The version that was reached: everything up to it was passed on."""
        return self._version

    async def start(self) -> None:
        """List once (raises what the store raises), then follow in the background until `close`."""
        await self._list()
        self._task = asyncio.create_task(self.run(), name=f"feed of {self._query.kind.plural}")

    async def close(self) -> None:
        """Stop following."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def synced(self) -> None:
        """Wait until the first list is in."""
        await self._synced.wait()

    async def reached(self, version: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when everything up to this version was passed on, at the latest after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._version < version:
                    await self._progress()

    async def run(self) -> None:
        """Follow until cancelled."""
        pauses, about = _Pauses(self._settings), {"kind": self._query.kind.name}
        while True:
            try:
                if not self._current:
                    await self._list()
                await self._watch(pauses)
            except Expired as error:
                self._current = False
                log.info("watch expired, listing again", extra={**about, "error": error.message})
                if pauses.fresh:
                    pauses.note()
                    continue
            except IsthmusError as error:
                log.warning("the store did not answer", extra={**about, "error": error.message})
            except Exception:
                # Whatever it was: a feed that stopped would keep revoked tokens alive, and jobs waiting for ever.
                self._current = False
                log.exception("following the store failed", extra=about)
                count_task_failure(f"feed of {self._query.kind.plural}")
            await pauses.sleep()

    async def _list(self) -> None:
        page = await self._everything() if self._listing else Page([], await self._store.version())
        self._replace(page)
        self._version = page.version  # also backwards: a store that was restored has forgotten what came after
        self._current = True
        self._synced.set()
        self._notify()

    async def _everything(self) -> Page:
        page = await self._store.list(self._query)
        version, records = page.version, page.records
        while page.continue_:
            page = await self._store.list(self._query, continue_=page.continue_)
            records = [*records, *page.records]
        return Page(records, version)

    async def _watch(self, pauses: _Pauses) -> None:
        bookmarks = self._settings.bookmarks
        async with self._store.watch(self._query, since=self._version, bookmarks=bookmarks) as changes:
            async for change in changes:
                pauses.reset()
                if change.version <= self._version:
                    continue
                if change.record is not None:
                    self._change(change)
                self._version = change.version
                self._notify()

    async def _progress(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def _notify(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


class _Pauses:
    """Pauses that double until something arrives, and differ between replicas that lost the same server."""

    def __init__(self, settings: FeedSettings) -> None:
        self._settings = settings
        self._next = settings.first_pause
        self.fresh = True
        """Whether something has arrived since the last failure."""

    def reset(self) -> None:
        self._next, self.fresh = self._settings.first_pause, True

    def note(self) -> None:
        self.fresh = False

    async def sleep(self) -> None:
        self.fresh = False
        pause, self._next = self._next, min(self._next * 2, self._settings.longest_pause)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
