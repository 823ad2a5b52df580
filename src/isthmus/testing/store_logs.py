"""The store contract as a suite: what stores promise that keep the log of changes, and any JSON, themselves."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.errors import Expired
from isthmus.resources.kinds import JOB, SITE
from isthmus.store.base import EventType, Part, Query, Store
from isthmus.store.settings import StoreSettings

from .store_watches import reported, take
from .stores import PATIENCE, Contract, StoreLocation, changed, job, site

ADDED = EventType.ADDED


@pytest.mark.anyio
class LogContract(Contract):
    """How long changes are kept is the store's own setting, and what it keeps is exactly what was sent."""

    async def test_numbers_and_truth_are_not_the_same(self, store: Store) -> None:
        """Python alone takes 1, 1.0 and true for equal."""
        record = await store.create(JOB, {**job("a"), "spec": {"priority": 1}})
        for other in (True, 1.0):
            again = await store.update(JOB, changed(record, spec={"priority": other}), Part.WHOLE)
            assert again.version > record.version
            record = await store.update(JOB, changed(again, spec={"priority": 1}))

    async def test_too_old(self, location: StoreLocation, store: Store) -> None:
        """Expired, before the first change: the watcher must list again."""
        await store.close()
        short = await location.open(StoreSettings(keep_changes=5, trim_interval=0.02, recent_changes=2))
        since = await short.version()
        for n in range(20):
            await short.create(JOB, job(f"j{n}"))
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with short.watch(Query(JOB), since=since):
                        await asyncio.sleep(0.02)
                except Expired as error:
                    message = error.message
                    break
        assert "list again" in message
        latest = await short.version()
        async with short.watch(Query(JOB), since=latest - 3) as changes:
            assert reported(await take(changes, 3)) == [(ADDED, f"j{n}") for n in (17, 18, 19)]

    async def test_by_age(self, location: StoreLocation, store: Store) -> None:
        """Old changes go even when they are few."""
        since = await store.version()
        for n in range(3):
            await store.create(JOB, job(f"j{n}"))
        await store.close()
        short = await location.open(StoreSettings(keep_seconds=-10, trim_interval=0.02))
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with short.watch(Query(JOB), since=since):
                        await asyncio.sleep(0.02)
                except Expired:
                    break
        async with short.watch(Query(JOB), since=since + 3) as changes:
            await short.create(JOB, job("new"))
            assert reported(await take(changes, 1)) == [(ADDED, "new")]

    async def test_the_past_is_read_from_the_log(self, location: StoreLocation, store: Store) -> None:
        """Far more than is held in memory, and after opening again."""
        since = await store.version()
        await asyncio.gather(*(store.create(JOB, job(f"j{n:04}")) for n in range(1300)))
        await store.close()
        again = await location.open(StoreSettings(recent_changes=10))
        async with again.watch(Query(JOB), since=since) as changes:
            await again.create(JOB, job("last"))
            got = await take(changes, 1301)
        assert [change.version for change in got] == list(range(since + 1, since + 1302))
        assert got[-1].record is not None
        assert got[-1].record.key.name == "last"

    async def test_a_list_continued_too_late(self, location: StoreLocation, store: Store) -> None:
        """From its version no watch could start any more: list again."""
        await store.close()
        short = await location.open(StoreSettings(keep_changes=3, trim_interval=0.02, recent_changes=1))
        for n in range(4):
            await short.create(JOB, job(f"j{n}"))
        page = await short.list(Query(JOB), limit=1)
        for n in range(10):
            await short.create(SITE, site(f"s{n}"))
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await short.list(Query(JOB), limit=1, continue_=page.continue_)
                except Expired:
                    break
                await asyncio.sleep(0.02)
        # Listing anew must lead out of it, however often the same list was asked for.
        fresh = await short.list(Query(JOB), limit=1)
        await short.list(Query(JOB), limit=1, continue_=fresh.continue_)
