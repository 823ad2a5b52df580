"""Feed: keeps a small in-memory index equal to the objects of one kind.

It lists, then watches from the listed version; when the version is too old it lists again, and when the store does
not answer it waits and tries again while the index keeps what it knew. `start` returns after the first list, so
that nobody is refused because the index is still empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from isthmus.errors import Expired, IsthmusError
from isthmus.resources.kinds import Kind
from isthmus.store.base import Change, Query, Record, Store

logger = logging.getLogger(__name__)

_BOOKMARKS = 10.0
_BACKOFF = (0.05, 5.0)


class Feed:
    """One kind, from the store into an index."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        replace: Callable[[Iterable[Record]], None],
        change: Callable[[Change], None],
    ) -> None:
        self._store = store
        self._query = Query(kind)
        self._replace = replace
        self._change = change
        self._version = 0
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fill the index, then keep it equal in the background."""
        await self._list()
        self._task = asyncio.create_task(self._run(), name=f"feed of {self._query.kind.plural}")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def reached(self, version: int, timeout: float) -> None:  # noqa: ASYNC109
        """Return when the index knows of this version, at the latest after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._version < version:
                    await self._moved.wait()

    async def _list(self) -> None:
        records: list[Record] = []
        page = await self._store.list(self._query)
        version = page.version
        records.extend(page.records)
        while page.continue_:
            page = await self._store.list(self._query, continue_=page.continue_)
            records.extend(page.records)
        self._replace(records)
        self._advance(version)

    async def _run(self) -> None:
        wait = _BACKOFF[0]
        listed = True
        while True:
            try:
                if not listed:
                    await self._list()
                    listed = True
                async with self._store.watch(self._query, since=self._version, bookmarks=_BOOKMARKS) as changes:
                    async for change in changes:
                        wait = _BACKOFF[0]
                        self._change(change)
                        self._advance(change.version)
            except Expired:
                listed = False
                continue
            except IsthmusError as error:
                logger.warning("feed interrupted", extra={"kind": self._query.kind.name, "error": error.message})
                listed = False
            except Exception:
                # A feed that died would keep revoked tokens alive: whatever it was, say so and begin again.
                logger.exception("feed failed", extra={"kind": self._query.kind.name})
                listed = False
            await asyncio.sleep(wait)
            wait = min(wait * 2, _BACKOFF[1])

    def _advance(self, version: int) -> None:
        self._version = max(self._version, version)
        self._moved.set()
        self._moved = asyncio.Event()
