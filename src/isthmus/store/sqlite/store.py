"""The store in one SQLite file.

A batch of writes is decided and put into SQLite's memory on the event loop, in microseconds per object, because a
thread would have to fight for Python's lock at every statement. Only the commit, which waits for the disk, runs in
a thread. Reads use connections of their own and see committed states only.

When another program holds the database locked, writes fail with `StoreUnavailable`, reads go on, and the next write
tries again: nothing has to be restarted. When the disk is full, creations fail so; changes and deletions go on with the
space in reserve (`reserve`), or nothing could be cancelled and deleted any more.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from isthmus.errors import IsthmusError, Misconfigured, StoreUnavailable
from isthmus.resources.kinds import Kind
from isthmus.store.base import Key, Page, Part, Propagation, Query, Record, missing
from isthmus.store.changes import Create, Delete, Operation, Transaction, Update, key_of
from isthmus.store.committing import Committer, Outcome, decide
from isthmus.store.entries import Entry
from isthmus.store.hub import Hub, Watch
from isthmus.store.selecting import selects_by_content
from isthmus.store.settings import StoreSettings
from isthmus.store.stamping import stamp

from .connecting import (
    FileLock,
    connect_reader,
    connect_writer,
    is_busy,
    is_full,
    no_space,
    prepare_file,
    translated,
    translating,
)
from .pages import PageCache
from .reading import PageQuery, read_log, read_object, read_owned, read_page, read_removed, read_version
from .reserve import Reserve
from .schema import migrate
from .writing import trim_log, write_ledger

log = logging.getLogger(__name__)
T = TypeVar("T")

_PUBLISHED_AT_ONCE = 1_000
_WRITTEN_AT_ONCE = 1_000
_RECENT, _RECENT_BYTES = 1_000, 8_192
"""So many objects, each of at most so many bytes, are remembered."""


class _Committed:
    """The committed objects, through the writer's connection.

    What was written lately is written again soon, so it is remembered: nobody else writes to this file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._recent: dict[Key, Record] = {}

    def find(self, key: Key) -> Record | None:
        return self._recent.get(key) or read_object(self._connection, key)

    def owned(self, uid: str) -> Iterator[Key]:
        return read_owned(self._connection, uid)

    def remember(self, written: Mapping[Key, Entry]) -> None:
        """These were committed."""
        for key, entry in written.items():
            self._recent.pop(key, None)
            if entry.after is not None and len(entry.record.data) <= _RECENT_BYTES:
                self._recent[key] = entry.record
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def forget(self) -> None:
        """It is not known what was committed."""
        self._recent.clear()


def _is_new(operation: Operation) -> bool:
    """Whether it is an object that somebody makes. The platform's own are part of deleting: what a job used is kept."""
    return isinstance(operation, Create) and operation.kind.served


class SqliteStore:
    """Objects in one SQLite file."""

    whole_at_once = True

    def __init__(self, path: Path, settings: StoreSettings | None = None) -> None:
        self._path = path
        self._settings = settings or StoreSettings()
        self._lock = FileLock(path)
        self.hub = Hub(self, self._settings)
        self._committer = Committer(self._commit, self._settings.batch)
        self._pages = PageCache()
        self._reserve = Reserve(path)
        self._idle: list[sqlite3.Connection] = []
        self._open = False

    async def open(self) -> None:
        """Take the lock, make or migrate the tables, start the writer."""
        await asyncio.to_thread(self._prepare)
        self._disk = ThreadPoolExecutor(1, "store-commit")
        self._threads = ThreadPoolExecutor(4, "store-read")
        self._writing = asyncio.Lock()
        self._committer.start()
        self._trimmer = asyncio.create_task(self._trim_regularly(), name="store-trimmer")
        self._open = True

    async def close(self) -> None:
        """Finish what was accepted, then let go."""
        if not self._open:
            return
        self._open = False
        await self._committer.close()
        self._trimmer.cancel()
        await asyncio.gather(self._trimmer, return_exceptions=True)
        self.hub.close()
        await asyncio.to_thread(self._let_go)

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        """Keep a new object."""
        return await self._committer.submit(Create(kind, key_of(kind, obj), obj))

    async def get(self, key: Key) -> Record:
        """The present version."""
        record = self._read(read_object, key)
        if record is None:
            raise missing(key)
        return record

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
        wanted = PageQuery(query, limit, continue_, most_bytes)
        cached = self._pages.find(wanted, self.hub)
        if cached is not None:
            return cached
        if limit is None or limit > self._settings.inline_rows or selects_by_content(query):
            page = await self._read_in_thread(lambda c: read_page(c, wanted, self._settings.piece_bytes))
        else:
            page = self._read(lambda c: read_page(c, wanted))
        self._pages.keep(wanted, page)
        return page

    def watch(self, query: Query, *, since: int | None = None, bookmarks: float | None = None) -> Watch:
        """Changes after a version."""
        return self.hub.watch(query, since, bookmarks)

    async def version(self) -> int:
        """The version of the latest change."""
        return self._read(read_version)

    async def present(self, query: Query) -> Page:
        """For the hub: all objects that match."""
        wanted = PageQuery(query, most_bytes=self._settings.buffer_bytes)
        return await self._read_in_thread(lambda c: read_page(c, wanted, self._settings.piece_bytes))

    async def past(self, query: Query, after: int, until: int, limit: int) -> Sequence[Entry]:
        """For the hub: entries from the log."""
        return await self._read_in_thread(lambda c: read_log(c, query, after, until, limit, self._settings.piece_bytes))

    async def tenant_removed(self, name: str, after: int) -> bool:
        """For the hub: whether a tenant was removed after a version."""
        return await self._read_in_thread(lambda c: read_removed(c, name, after))

    def _prepare(self) -> None:
        prepare_file(self._path)
        self._lock.acquire()
        try:
            self.writer = connect_writer(self._path)
            try:
                migrate(self.writer, str(self._path))
                self._reserve.take()
                self._committed = _Committed(self.writer)
                self._reader = connect_reader(self._path)
                self.hub.version = read_version(self._reader)
            except BaseException:
                self.writer.close()
                raise
        except sqlite3.Error as error:
            self._lock.release()
            problem = translated(error, self._path)
            reported = f"{self._path}: {problem.message} ({error})"  # whoever starts the server may know where it lies
            raise StoreUnavailable(reported) if is_busy(error) else Misconfigured(reported) from error
        except BaseException:
            self._lock.release()
            raise

    def _let_go(self) -> None:
        self._disk.shutdown()
        self._threads.shutdown()
        for connection in (self._reader, *self._idle, self.writer):  # the last one to close empties the WAL
            connection.close()
        self._idle.clear()
        self._lock.release()

    def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        try:
            return read(self._reader, *arguments)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    async def _read_in_thread(self, read: Callable[[sqlite3.Connection], T]) -> T:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read_apart, read)

    def _read_apart(self, read: Callable[[sqlite3.Connection], T]) -> T:
        with translating(self._path):
            connection = self._idle.pop() if self._idle else connect_reader(self._path)
            try:
                return read(connection)
            finally:
                self._idle.append(connection)

    async def _commit(self, operations: Sequence[Operation]) -> Sequence[Outcome]:
        async with self._writing:
            with translating(self._path):
                entries, outcomes = await self._transaction_with_reserve(operations)
        await self._publish(entries)
        return outcomes

    async def _transaction_with_reserve(
        self, operations: Sequence[Operation]
    ) -> tuple[Sequence[Entry], Sequence[Outcome]]:
        if self._reserve.held or self._reserve.take():
            try:
                return await self._transaction(operations)
            except sqlite3.OperationalError as error:
                if not is_full(error):
                    raise
                log.warning("store.disk_full path=%s", self._path)
                self._reserve.give_up()
        allowed = [operation for operation in operations if not _is_new(operation)]
        entries, made = await self._transaction_within_reserve(allowed) if allowed else ((), ())
        results = iter(made)
        outcomes: list[Outcome] = []
        for operation in operations:  # the transaction may have been filled by the first few
            outcome = no_space() if _is_new(operation) else next(results, None)
            if outcome is None:
                break
            outcomes.append(outcome)
        return entries, outcomes

    async def _transaction_within_reserve(
        self, operations: Sequence[Operation]
    ) -> tuple[Sequence[Entry], Sequence[Outcome]]:
        while True:
            try:
                return await self._transaction(operations)
            except sqlite3.OperationalError as error:
                if not is_full(error) or not self._reserve.give_up():
                    raise

    def problem(self) -> str:
        """Why new objects are refused at present; empty if they are not."""
        fits = (self._reserve.held or self._reserve.take()) and not self._reserve.is_short()
        return "" if fits else no_space().message

    async def _publish(self, entries: Sequence[Entry]) -> None:
        """Notify the watchers. The commit stands whatever happens here."""
        try:
            for start in range(0, len(entries), _PUBLISHED_AT_ONCE):
                if start:  # a cascade may be long: let the watchers run in between
                    await asyncio.sleep(0)
                self.hub.publish(entries[start : start + _PUBLISHED_AT_ONCE])
        except Exception:
            log.exception("store.publish_failed version=%d", entries[-1].version)
            self.hub.reset(entries[-1].version, "a change could not be delivered; list again")

    async def _transaction(self, operations: Sequence[Operation]) -> tuple[Sequence[Entry], Sequence[Outcome]]:
        await self._begin()
        try:
            now = time.time()
            ledger = Transaction(self._committed, read_version(self.writer), stamp(now))
            outcomes = await decide(ledger, operations, self._settings.batch_bytes)
            if not ledger.entries:
                self.writer.execute("ROLLBACK")
                return (), outcomes
            if len(ledger.entries) > _WRITTEN_AT_ONCE:
                await self._on_disk(lambda: write_ledger(self.writer, ledger, int(now)))
            else:
                write_ledger(self.writer, ledger, int(now))
            await self._on_disk(self.writer.commit)
        except BaseException:
            self._committed.forget()
            if self.writer.in_transaction:
                self.writer.execute("ROLLBACK")
            raise
        self._committed.remember(ledger.latest)
        return ledger.entries, outcomes

    async def _begin(self) -> None:
        """Begin, waiting a while for another program that has the database locked."""
        deadline = time.monotonic() + self._settings.lock_wait
        while True:
            try:
                if self.writer.in_transaction:  # what was left when even giving up had failed
                    self.writer.execute("ROLLBACK")
                self.writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
            else:
                return

    async def _on_disk(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk, work)

    async def _trim_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.trim_interval)
            try:
                gone = self._settings.trim_step
                while gone == self._settings.trim_step:
                    gone = await self._trim()
            except IsthmusError as error:
                log.warning("store.trim_failed error=%s", error)
            except Exception:
                log.exception("store.trim_failed")

    async def _trim(self) -> int:
        """Remove one step of old log entries, between two batches."""
        async with self._writing:
            with translating(self._path):
                await self._begin()
                return await asyncio.get_running_loop().run_in_executor(self._disk, self._trim_step)

    def _trim_step(self) -> int:
        settings = self._settings
        try:
            gone = trim_log(
                self.writer, settings.keep_changes, int(time.time() - settings.keep_seconds), settings.trim_step
            )
            self.writer.execute("COMMIT")
        except BaseException:
            if self.writer.in_transaction:
                self.writer.execute("ROLLBACK")
            raise
        return gone
