"""What only SQLite can get wrong: files, locks, a full disk, damage."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.errors import Expired, Misconfigured, StoreUnavailable
from isthmus.resources.frame.selectors import parse_labels
from isthmus.resources.kinds import JOB
from isthmus.store.base import Query, Record
from isthmus.store.changes import Operation, Transaction
from isthmus.store.opening import store_at
from isthmus.store.settings import StoreSettings
from isthmus.store.sqlite import SqliteStore
from isthmus.store.sqlite.schema import MIGRATIONS, migrate
from isthmus.testing.store_watches import take
from isthmus.testing.stores import changed, job, job_key

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "isthmus.db"


async def opened(path: Path, settings: StoreSettings | None = None) -> SqliteStore:
    store = SqliteStore(path, settings)
    await store.open()
    return store


async def test_only_the_owner_can_read_it(path: Path) -> None:
    store = await opened(path)
    await store.create(JOB, job("a"))
    files = [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", ".lock"))]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 4
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await store.close()


async def test_a_second_process_is_refused_by_name(path: Path) -> None:
    store = await opened(path)
    code = (
        "import asyncio, sys; from isthmus.store.opening import open_store\n"
        "try: asyncio.run(open_store(sys.argv[1]))\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    reported = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    assert reported.stdout.startswith("Misconfigured")
    assert f"in use by process {os.getpid()}" in reported.stdout
    assert str(path) in reported.stdout
    await store.close()
    await (await opened(path)).close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    await (await opened(path)).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(Misconfigured, match="newer Isthmus"):
        await opened(path)


def test_migrations_are_applied_once_and_whole(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    migrate(connection, "db")
    more = (*MIGRATIONS, "CREATE TABLE extra (x);", "CREATE TABLE more (x); CREATE TABLE extra (x);")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "db", more)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    migrate(connection, "db", more[:-1])
    migrate(connection, "db", more[:-1])
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    connection.close()


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(Misconfigured, match="restore a backup"):
        await opened(path)
    assert path.read_bytes().startswith(b"no database"), "it is left as it was"


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match="check the folder"):
        await opened(tmp_path / "file" / "isthmus.db")


async def test_locked_by_another_program(path: Path) -> None:
    store = await opened(path, StoreSettings(lock_wait=0.05))
    kept = await store.create(JOB, job("kept"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.create(JOB, job("a"))
    assert (await store.get(kept.key)).data == kept.data
    assert len((await store.list(Query(JOB))).records) == 1
    other.execute("ROLLBACK")
    other.close()
    await store.create(JOB, job("a"))
    await store.close()


async def test_a_short_lock_is_waited_for(path: Path) -> None:
    store = await opened(path, StoreSettings(lock_wait=60))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.create(JOB, job("a")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert (await waiting).key == job_key("a")
    await store.close()


async def fill(store: SqliteStore) -> list[str]:
    """Create until it is full; the names acknowledged."""
    names: list[str] = []
    for n in range(100_000):
        try:
            await store.create(JOB, {**job(f"j{n:06}"), "spec": {"filler": "x" * 20_000}})
        except StoreUnavailable as error:
            problem = error
            break
        names.append(f"j{n:06}")
    assert "no space left" in problem.message
    return names


async def check_full(store: SqliteStore, names: list[str]) -> None:
    """It still reads, tells watchers nothing that is not true, and refuses to write."""
    assert [r.key.name for r in (await store.list(Query(JOB))).records] == names
    assert (await store.get(job_key(names[0]))).key.name == names[0]
    with pytest.raises(StoreUnavailable):
        await store.create(JOB, {**job("more"), "spec": {"filler": "x" * 200_000}})


async def test_no_pages_left(path: Path) -> None:
    store = await opened(path)
    store.writer.execute("PRAGMA max_page_count = 200")
    names = await fill(store)
    await check_full(store, names)
    store.writer.execute("PRAGMA max_page_count = 100000")
    assert (await store.create(JOB, job("more"))).version == len(names) + 1
    await store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte where we may mount one, else an ordinary folder: the test then limits the pages."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk(small_disk: Path) -> None:
    store = await opened(small_disk / "isthmus.db")
    if not os.path.ismount(small_disk):
        store.writer.execute("PRAGMA max_page_count = 200")
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    names = await fill(store)
    await check_full(store, names)
    ballast.unlink()
    if not os.path.ismount(small_disk):
        store.writer.execute("PRAGMA max_page_count = 100000")
    await store.create(JOB, {**job("z-more"), "spec": {"filler": "x" * 20_000}})
    await store.close()
    again = await opened(small_disk / "isthmus.db")
    assert [r.key.name for r in (await again.list(Query(JOB))).records] == [*names, "z-more"]
    await again.close()


async def test_listed_pages_are_never_stale(path: Path) -> None:
    store = await opened(path)
    queries = [Query(JOB, "ada"), Query(JOB), Query(JOB, "ada", parse_labels("x=1"))]
    record = await store.create(JOB, job("a", labels={"x": "1"}))
    for query in queries:
        for _ in range(2):
            assert [r.data for r in (await store.list(query, limit=5)).records] == [record.data]
    record = await store.update(JOB, changed(record, labels={"x": "1", "y": "2"}))
    for query in queries:
        page = await store.list(query, limit=5)
        assert [r.data for r in page.records] == [record.data]
        assert page.version == record.version
    await store.delete(record.key)
    assert [(await store.list(query, limit=5)).records for query in queries] == [[], [], []]
    await store.close()


async def test_watchers_leave_nothing_behind(path: Path) -> None:
    store = await opened(path)
    for _ in range(3):
        async with store.watch(Query(JOB), since=0, bookmarks=0.01):
            assert store.hub.count() == 1
        assert store.hub.count() == 0
    await store.close()


async def test_a_change_that_cannot_be_told_is_kept_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(path)
    async with store.watch(Query(JOB), since=0) as changes:
        with monkeypatch.context() as broken:
            broken.setattr(store.hub, "publish", lambda _: 1 / 0)
            record = await store.create(JOB, job("a"))
        with pytest.raises(Expired):
            await take(changes, 1)
    assert (await store.get(record.key)).data == record.data
    await store.close()


async def test_one_bad_write_fails_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nobody thought of what is bad about it."""
    store = await opened(path)
    apply = Transaction.apply

    def bad(self: Transaction, operation: Operation, limit: int | None = None) -> Record:
        if operation.key.name == "j3":
            raise ZeroDivisionError
        return apply(self, operation, limit)

    monkeypatch.setattr(Transaction, "apply", bad)
    results = await asyncio.gather(*(store.create(JOB, job(f"j{n}")) for n in range(6)), return_exceptions=True)
    assert [isinstance(result, Record) for result in results] == [True, True, True, False, True, True]
    assert isinstance(results[3], StoreUnavailable)
    assert await store.version() == 5
    await store.close()


async def test_strange_paths(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a b?c#d%41é" / "x.db")
    record = await store.create(JOB, job("a"))
    assert [r.data for r in (await store.list(Query(JOB))).records] == [record.data]
    await store.close()
    assert (tmp_path / "a b?c#d%41é" / "x.db").exists()


@pytest.mark.parametrize("address", ["mysql://host/isthmus", "sqlite:///isthmus.db", "postgre://host/isthmus"])
def test_the_address_of_another_store_is_no_file(address: str) -> None:
    with pytest.raises(Misconfigured, match="there is no store for"):
        store_at(address)
