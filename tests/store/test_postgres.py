"""What only PostgreSQL can get wrong: lost connections, lost answers, rights, replicas of other versions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from isthmus.errors import Expired, Misconfigured, NotFound, StoreUnavailable
from isthmus.resources.kinds import JOB
from isthmus.store.base import Query, Record
from isthmus.store.postgres import PostgresStore
from isthmus.store.postgres import store as store_module
from isthmus.store.settings import StoreSettings
from isthmus.testing.postgres import Postgres
from isthmus.testing.store_watches import ADDED, reported, take
from isthmus.testing.stores import PATIENCE, job, job_key

from .conftest import DataLocation

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
async def store(postgres_location: DataLocation) -> PostgresStore:
    store = await postgres_location.open()
    assert isinstance(store, PostgresStore)
    return store


@pytest.fixture
async def admin(postgres: Postgres) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres.url)
    yield connection
    await connection.close()


async def cut_all(admin: Any) -> None:
    """End every connection but ours."""
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'isthmus'")


async def persist(store: PostgresStore, name: str) -> Record:
    """Create, trying again while the store is away."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.create(JOB, job(name))
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_lost_connections_are_made_again(store: PostgresStore, admin: Any) -> None:
    async with store.watch(Query(JOB), since=await store.version()) as changes:
        for n in range(3):
            await persist(store, f"a{n}")
            await cut_all(admin)
            await persist(store, f"b{n}")
        got = await take(changes, 6)
    assert reported(got) == [(ADDED, name) for n in range(3) for name in (f"a{n}", f"b{n}")]
    assert len((await store.list(Query(JOB))).records) == 6


@pytest.fixture
def other_server() -> Iterator[Postgres]:
    with Postgres(durable=False) as server:
        yield server


async def test_a_server_that_goes_and_comes_back(other_server: Postgres) -> None:
    store = PostgresStore(other_server.url)
    await store.open()
    async with store.watch(Query(JOB), since=0) as changes:
        kept = await store.create(JOB, job("before"))
        await asyncio.to_thread(other_server.stop)
        for attempt in (store.create(JOB, job("lost")), store.get(kept.key), store.list(Query(JOB))):
            with pytest.raises(StoreUnavailable):
                await attempt
        await asyncio.to_thread(other_server.start)
        await persist(store, "after")
        assert reported(await take(changes, 2)) == [(ADDED, "before"), (ADDED, "after")]
    with pytest.raises(NotFound):
        await store.get(job_key("lost"))
    await store.close()


async def test_closing_without_a_server(other_server: Postgres) -> None:
    store = PostgresStore(other_server.url, StoreSettings(lookup_wait=1))
    await store.open()
    await asyncio.to_thread(other_server.kill)
    await store.close()


class LosesAnswers:
    """A connection that breaks at the commit, before or after it took place."""

    def __init__(self, connection: Any, committed: bool) -> None:
        self._connection = connection
        self._committed = committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, statement: str, *arguments: Any) -> Any:
        if statement != "COMMIT":
            return await self._connection.execute(statement, *arguments)
        if self._committed:
            await self._connection.execute(statement)
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lost_answer_is_looked_up(store: PostgresStore, committed: bool) -> None:
    await store.create(JOB, job("before"))
    since = await store.version()
    store.writer = LosesAnswers(store.writer, committed)
    results = await asyncio.gather(*(store.create(JOB, job(f"j{n}")) for n in range(5)), return_exceptions=True)
    if committed:
        assert [isinstance(result, Record) for result in results] == [True] * 5
        async with store.watch(Query(JOB), since=since) as changes:
            assert reported(await take(changes, 5)) == [(ADDED, f"j{n}") for n in range(5)]
    else:
        assert all(isinstance(r, StoreUnavailable) and "nothing was changed" in r.message for r in results)
        assert await store.version() == since
        # Another takes the same version: it must not be mistaken for the lost batch.
        assert (await store.create(JOB, job("j0"))).version == since + 1


async def test_an_answer_that_stays_unknown_is_called_so(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(store_module, "connect_writer", away)
    object.__setattr__(store.settings, "lookup_wait", 0.2)
    store.writer = LosesAnswers(store.writer, True)
    with pytest.raises(StoreUnavailable, match="not known whether"):
        await store.create(JOB, job("a"))
    monkeypatch.undo()
    assert (await store.get(job_key("a"))).key.name == "a"


async def test_a_replica_that_froze_does_not_hold_the_others(postgres_location: DataLocation, admin: Any) -> None:
    quick = await postgres_location.open(StoreSettings(lock_wait=0.2))
    assert isinstance(quick, PostgresStore)
    await quick.create(JOB, job("a"))
    async with admin.transaction():
        await admin.execute(f"SELECT 1 FROM {quick.settings.schema}.counter FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await quick.create(JOB, job("b"))
        assert (await quick.get(job_key("a"))).key.name == "a"
    await quick.create(JOB, job("b"))


async def test_a_database_set_back(store: PostgresStore, admin: Any) -> None:
    for n in range(5):
        await store.create(JOB, job(f"j{n}"))
    async with store.watch(Query(JOB), since=5) as changes:
        schema = store.settings.schema
        await admin.execute(f"DELETE FROM {schema}.log WHERE version > 2; UPDATE {schema}.counter SET version = 2")
        await cut_all(admin)
        with pytest.raises(Expired):
            await take(changes, 1)


async def test_a_newer_schema_is_refused(store: PostgresStore, postgres_location: DataLocation, admin: Any) -> None:
    await admin.execute(f"UPDATE {store.settings.schema}.counter SET schema = 99")
    with pytest.raises(Misconfigured, match="newer Isthmus"):
        await postgres_location.open()


async def test_two_replicas_may_start_together(postgres_location: DataLocation) -> None:
    stores = await asyncio.gather(*(postgres_location.open() for _ in range(4)))
    await asyncio.gather(*(store.create(JOB, job(f"j{n}")) for n, store in enumerate(stores)))
    assert len((await stores[0].list(Query(JOB))).records) == 4


@pytest.mark.parametrize("schema", ["Big", "a-b", "x; DROP", ""])
def test_names_of_schemas(schema: str) -> None:
    with pytest.raises(Misconfigured):
        PostgresStore("postgresql:///x", StoreSettings(schema=schema))


async def test_addresses_that_lead_nowhere(postgres: Postgres) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await PostgresStore("postgresql://someone:secret@/db?host=/nowhere").open()
    with pytest.raises(Misconfigured, match="check address"):
        await PostgresStore(postgres.url.replace("/postgres?", "/absent?")).open()


async def test_a_change_that_cannot_be_told_ends_the_watches(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.watch(Query(JOB), since=await store.version()) as changes:
        with monkeypatch.context() as broken:
            broken.setattr(store.hub, "publish", lambda _: 1 / 0)
            await store.create(JOB, job("a"))
            with pytest.raises(Expired):
                await take(changes, 1)
    async with store.watch(Query(JOB)) as changes:
        await store.create(JOB, job("b"))
        assert reported(await take(changes, 2)) == [(ADDED, "a"), (ADDED, "b")]


def test_without_asyncpg_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from isthmus.store.opening import store_at\n"
        "store_at('/some/file')\n"
        "try: store_at('postgresql:///x')\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith("Misconfigured")
    assert "isthmus[postgres]" in said
