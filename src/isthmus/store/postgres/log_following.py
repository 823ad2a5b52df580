"""Following the log: the changes of all replicas, our own among them, in one order.

Writers hold the row of the counter until their commit is visible, so whoever sees a version sees all before it, and
the log can simply be read on from the last version known. A notification wakes us, a slow poll is the safety net.
While the server is away we try again, ever more slowly; then we read on where we stopped. Only when entries in
between are gone must the watchers list again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

import asyncpg

from isthmus.store.hub import Hub
from isthmus.store.settings import StoreSettings

from .connecting import LOST, Connection, connect
from .reading import TAIL, VERSION, entry_of

log = logging.getLogger(__name__)

_CHUNK = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class LogFollower:
    """The task that feeds the hub."""

    def __init__(self, url: str, settings: StoreSettings, hub: Hub, channel: str) -> None:
        self._url = url
        self._settings = settings
        self._hub = hub
        self._channel = channel
        self._news = asyncio.Event()

    def hint(self) -> None:
        """There may be something new."""
        self._news.set()

    async def run(self) -> None:
        """Follow for ever."""
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await connect(self._url, self._settings)
                try:
                    await connection.add_listener(self._channel, lambda *_: self._news.set())
                    await self._check_history(connection)
                    pause = _FIRST_PAUSE
                    await self._follow(connection)
                finally:
                    connection.terminate()
            except (*LOST, asyncpg.PostgresError) as error:
                log.warning("store.follow_failed retry_in=%.1fs error=%r", pause, error)
            except Exception:
                log.exception("store.follow_failed")
                self._hub.reset(self._hub.version, "a change could not be delivered; list again")
            # Replicas that lost the same server do not come back all at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _follow(self, connection: Connection) -> None:
        while True:
            self._news.clear()
            await self._catch_up(connection)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_interval):
                    await self._news.wait()

    async def _catch_up(self, connection: Connection) -> None:
        hub = self._hub
        while True:
            rows = await connection.fetch(TAIL, hub.version, _CHUNK, self._settings.piece_bytes)
            if rows and rows[0]["version"] != hub.version + 1:
                hub.reset(rows[0]["version"] - 1, "changes in between are no longer kept; list again")
            hub.publish([entry_of(row) for row in rows])
            if len(rows) < _CHUNK and sum(len(row["data"]) for row in rows) < self._settings.piece_bytes:
                return

    async def _check_history(self, connection: Connection) -> None:
        """A database restored from a backup may be behind what we have reported."""
        version = await connection.fetchval(VERSION)
        if version < self._hub.version:
            self._hub.reset(version, "the database was set back to an earlier state; list again")
