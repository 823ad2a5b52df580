"""The store in PostgreSQL, for one or several replicas.

The writers of all replicas take turns: each transaction first locks the row of the counter, so versions are in the
order of commits and nobody decides on a state that another is changing.

**When the answer to a commit is lost**, the writer does not guess and does not repeat. Each batch has an id that is
written into its log entries. On a new connection the writer locks the counter, which waits until the old transaction
has ended one way or the other, and looks whether the id is there. Callers then get their results, or an error that says
that nothing was changed. Only when the server stays away longer than `lookup_wait` do they hear that it is not
known; then the object must be read before the change is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from isthmus.errors import IsthmusError, StoreUnavailable
from isthmus.resources.kinds import Kind
from isthmus.store.base import Key, Page, Part, Propagation, Query, Record, missing
from isthmus.store.changes import Create, Delete, Operation, Transaction, Update, key_of
from isthmus.store.committing import Committer, Outcome, decide
from isthmus.store.entries import Entry
from isthmus.store.hub import Hub, Watch
from isthmus.store.settings import StoreSettings
from isthmus.store.stamping import stamp

from .connecting import LOST, Connection, checked_schema, connect_pool, connect_writer, translating
from .log_following import LogFollower
from .reading import GET, REMOVED, VERSION, read_log, read_page
from .schema import migrate
from .writing import Loaded, trim_log, write_ledger

log = logging.getLogger(__name__)

_NOTHING = "nothing was changed"


class PostgresStore:
    """Objects in PostgreSQL."""

    whole_at_once = True

    def __init__(self, url: str, settings: StoreSettings | None = None) -> None:
        self._url = url
        self.settings = settings or StoreSettings()
        self._channel = f"isthmus_{checked_schema(self.settings.schema)}"
        self.hub = Hub(self, self.settings)
        self._committer = Committer(self._commit, self.settings.batch)
        self.writer: Connection | None = None
        self._open = False

    async def open(self) -> None:
        """Connect, make or migrate the tables, start the writer."""
        with translating(self._url, "start it, or check the address"):
            writer = await connect_writer(self._url, self.settings)
            try:
                await migrate(writer, self.settings.schema)
                self.hub.version = await writer.fetchval(VERSION)
                self._pool = await connect_pool(self._url, self.settings)
            except BaseException:
                writer.terminate()
                raise
        self.writer = writer
        self._follower = LogFollower(self._url, self.settings, self.hub, self._channel)
        self._tasks = []
        if self.settings.following:
            self._tasks = [
                asyncio.create_task(self._follower.run(), name="store-follower"),
                asyncio.create_task(self._trim_regularly(), name="store-trimmer"),
            ]
        self._committer.start()
        self._open = True

    async def close(self) -> None:
        """Finish what was accepted, then let go."""
        if not self._open:
            return
        self._open = False
        await self._committer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.hub.close()
        self._give_up()
        try:
            async with asyncio.timeout(self.settings.lookup_wait):
                await self._pool.close()
        except LOST:
            self._pool.terminate()
        await asyncio.sleep(0)  # ended connections close their sockets in the next round of the event loop

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        """Keep a new object."""
        return await self._committer.submit(Create(kind, key_of(kind, obj), obj))

    async def get(self, key: Key) -> Record:
        """The present version."""
        async with self._reading() as connection:
            row = await connection.fetchrow(GET, *key)
        if row is None:
            raise missing(key)
        return Record(key, row[0], row[1], row[2])

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        """Replace a part of an object."""
        return await self._committer.submit(Update(kind, key_of(kind, obj), obj, part))

    async def delete(
        self,
        key: Key,
        *,
        uid: str | None = None,
        version: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Record:
        """Delete, if it still is the object meant."""
        return await self._committer.submit(Delete(key, uid, version, propagation))

    async def list(
        self, query: Query, *, limit: int | None = None, continue_: str | None = None, most_bytes: int | None = None
    ) -> Page:
        """The objects that match."""
        async with self._reading() as connection:
            return await read_page(connection, query, limit, continue_, most_bytes, self.settings.piece_bytes)

    def watch(self, query: Query, *, since: int | None = None, bookmarks: float | None = None) -> Watch:
        """Changes after a version."""
        return self.hub.watch(query, since, bookmarks)

    async def version(self) -> int:
        """The version of the latest change."""
        async with self._reading() as connection:
            version: int = await connection.fetchval(VERSION)
            return version

    async def present(self, query: Query) -> Page:
        """For the hub: all objects that match."""
        return await self.list(query, most_bytes=self.settings.buffer_bytes)

    async def past(self, query: Query, after: int, until: int, limit: int) -> Sequence[Entry]:
        """For the hub: entries from the log."""
        async with self._reading() as connection:
            return await read_log(connection, query, after, until, limit, self.settings.piece_bytes)

    async def tenant_removed(self, name: str, after: int) -> bool:
        """For the hub: whether a tenant was removed after a version."""
        async with self._reading() as connection:
            return bool(await connection.fetchval(REMOVED, after, name))

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        with translating(self._url, "try again"):
            async with self._pool.acquire(timeout=self.settings.answer_wait) as connection:
                yield connection

    async def _commit(self, operations: Sequence[Operation]) -> Sequence[Outcome]:
        with translating(self._url, _NOTHING):
            if self.writer is None or self.writer.is_closed():
                self.writer = await connect_writer(self._url, self.settings)
            try:
                batch, ledger, outcomes = await self._prepare(self.writer, operations)
            except BaseException:
                self._give_up()
                raise
        if not ledger.entries:
            return outcomes
        try:
            await self.writer.execute("COMMIT")
        except LOST as error:
            self._give_up()
            if not await self._took_place(batch, ledger.version):
                raise StoreUnavailable(f"PostgreSQL went away in the middle of a commit; {_NOTHING}") from error
        except BaseException:
            self._give_up()
            raise
        self._follower.hint()
        return outcomes

    async def _prepare(
        self, connection: Connection, operations: Sequence[Operation]
    ) -> tuple[UUID, Transaction, Sequence[Outcome]]:
        """Decide a batch and write it, up to the commit."""
        await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        version: int = await connection.fetchval(f"{VERSION} FOR UPDATE")
        loaded = Loaded(connection)
        await loaded.load_for(operations)
        now, batch = time.time(), uuid4()
        ledger = Transaction(loaded, version, stamp(now))
        outcomes = await decide(ledger, operations, self.settings.batch_bytes, loaded.supply)
        if ledger.entries:
            await write_ledger(connection, ledger, int(now), batch, self._channel)
        else:
            await connection.execute("ROLLBACK")
        return batch, ledger, outcomes

    def _give_up(self) -> None:
        """Drop the writer's connection: the server ends its transaction."""
        if self.writer is not None:
            self.writer.terminate()
            self.writer = None

    async def _took_place(self, batch: UUID, version: int) -> bool:
        """Whether a batch was committed whose answer was lost."""
        deadline = time.monotonic() + self.settings.lookup_wait
        while True:
            try:
                return await self._look_up(batch, version)
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        "PostgreSQL went away in the middle of a commit and it is not "
                        "known whether the change was made; read the object before trying again"
                    ) from error
                await asyncio.sleep(0.1)

    async def _look_up(self, batch: UUID, version: int) -> bool:
        with translating(self._url):
            connection = await connect_writer(self._url, self.settings)
            try:
                async with connection.transaction():
                    await connection.fetchval(f"{VERSION} FOR UPDATE")  # waits for the end of the lost transaction
                    found = await connection.fetchval("SELECT batch FROM log WHERE version = $1", version)
            finally:
                connection.terminate()
        return found is not None and str(found) == str(batch)

    async def _trim_regularly(self) -> None:
        settings = self.settings
        while True:
            await asyncio.sleep(settings.trim_interval)
            try:
                since = int(time.time() - settings.keep_seconds)
                gone = settings.trim_step
                while gone == settings.trim_step:
                    async with self._reading() as connection:
                        gone = await trim_log(connection, settings.keep_changes, since, settings.trim_step)
            except IsthmusError as error:
                log.warning("store.trim_failed error=%s", error)
            except Exception:
                log.exception("store.trim_failed")
