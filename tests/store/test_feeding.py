"""The one way to follow the store: it misses nothing, tells nothing twice, and gives up on nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from isthmus.errors import StoreUnavailable
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB
from isthmus.store.base import Change, EventType, Key, Page, Query
from isthmus.store.feeding import Feed, FeedSettings
from isthmus.store.settings import StoreSettings
from isthmus.store.sqlite import SqliteStore
from isthmus.testing.faulty_store import FaultyStore
from isthmus.testing.virtual_time import on_virtual_time

QUICK = FeedSettings(bookmarks=1.0)


@dataclass
class Copy:
    """What somebody keeps who is fed."""

    store: FaultyStore
    objects: dict[str, int] = field(default_factory=dict)
    pages: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    hinder: Callable[[], None] = lambda: None

    def replace(self, page: Page) -> None:
        self.hinder()
        self.pages.append(page.version)
        self.objects = {record.key.name: record.version for record in page.records}

    def change(self, change: Change) -> None:
        self.hinder()
        assert change.record is not None, "bookmarks are not passed on"
        self.changes.append(change.version)
        if change.type is EventType.DELETED:
            self.objects.pop(change.record.key.name)
        else:
            self.objects[change.record.key.name] = change.record.version

    async def true(self) -> dict[str, int]:
        return {record.key.name: record.version for record in (await self.store.real.list(Query(JOB))).records}

    async def equal(self) -> None:
        """Wait until the copy is what the store has, and stay with that."""
        async with asyncio.timeout(600):
            while self.objects != await self.true():
                await asyncio.sleep(0.01)


async def make(store: FaultyStore, *names: str) -> None:
    for name in names:
        meta = {"name": name, "namespace": "t"}
        await store.real.create(JOB, validate(JOB, {"metadata": meta, "spec": {"command": ["true"]}}))


async def remove(store: FaultyStore, name: str) -> None:
    await store.real.delete(Key(JOB.name, "t", name))


@asynccontextmanager
async def fed(folder: Path, *, listing: bool = True, **settings: Any) -> AsyncIterator[tuple[FaultyStore, Copy, Feed]]:
    real = SqliteStore(folder / "x.db", StoreSettings(**settings))
    await real.open()
    store = FaultyStore(real)
    copy = Copy(store)
    feed = Feed(store, JOB, replace=copy.replace, change=copy.change, listing=listing, settings=QUICK)
    await make(store, "old")
    try:
        await feed.start()
        yield store, copy, feed
    finally:
        await feed.close()
        await real.close()


Test = Callable[[Path], Coroutine[Any, Any, None]]


def virtual(test: Test) -> Callable[[Path], None]:
    """Run a test on virtual time."""

    def run(tmp_path: Path) -> None:
        on_virtual_time(test(tmp_path))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtual
async def test_what_there_was_and_what_comes_is_passed_on_in_order(folder: Path) -> None:
    async with fed(folder) as (store, copy, feed):
        assert set(copy.objects) == {"old"}, "the first list is in when start returns"
        await make(store, "a", "b")
        await remove(store, "old")
        await copy.equal()
        assert copy.changes == sorted(set(copy.changes))
        assert len(copy.pages) == 1
        await feed.reached(await store.real.version(), 1.0)
        assert feed.version == await store.real.version()


@virtual
async def test_a_first_list_that_fails_is_told_to_whoever_starts(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        store.away = True
        other = Feed(store, JOB, replace=copy.replace, change=copy.change)
        with pytest.raises(StoreUnavailable):
            await other.start()
        await other.close()


@virtual
async def test_run_by_its_owner_it_waits_for_a_store_that_is_away(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        store.away = True
        late = Copy(store)
        other = Feed(store, JOB, replace=late.replace, change=late.change)
        task = asyncio.create_task(other.run())
        await asyncio.sleep(100)
        assert not late.pages
        store.away = False
        await other.synced()
        assert late.objects == copy.objects
        task.cancel()


@virtual
async def test_expired_it_lists_again_and_tells_the_difference(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        for name in ("a", "b", "c"):
            store.expire()
            await make(store, name)
            await copy.equal()
        assert len(copy.pages) >= 2


@virtual
async def test_a_log_that_was_trimmed_meanwhile_means_a_new_list(folder: Path) -> None:
    settings: dict[str, Any] = {"keep_changes": 1, "keep_seconds": 0, "trim_interval": 0.5, "recent_changes": 1}
    async with fed(folder, **settings) as (store, copy, _):
        store.away = True
        store.disconnect()
        await make(store, *(f"n{n}" for n in range(20)))
        await remove(store, "old")
        await asyncio.sleep(60)
        assert set(copy.objects) == {"old"}, "what was known stays known"
        store.away = False
        await copy.equal()
        assert len(copy.pages) == 2


@virtual
async def test_disconnected_it_goes_on_from_where_it_was_without_a_new_list(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        await make(store, "a")
        await copy.equal()
        reached, lists = copy.changes[-1], store.lists
        store.away = True
        store.disconnect()
        await make(store, "b")
        await remove(store, "a")
        await asyncio.sleep(30)
        store.away = False
        await copy.equal()
        assert store.lists == lists
        assert store.watched[-1] is not None
        assert store.watched[-1] >= reached
        assert copy.changes == sorted(set(copy.changes))


@virtual
async def test_changes_that_are_delivered_twice_are_passed_on_once(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        store.repeats = 3
        await make(store, "a", "b")
        await remove(store, "a")
        await make(store, "a")
        await copy.equal()
        assert copy.changes == sorted(set(copy.changes))
        assert len(copy.changes) == 4


@virtual
async def test_one_that_is_too_slow_lists_again(folder: Path) -> None:
    async with fed(folder, buffer_changes=5, recent_changes=5) as (store, copy, _):
        # A burst in one commit: more than one watcher's buffer takes.
        await asyncio.gather(*(make(store, f"n{n}") for n in range(50)))
        await copy.equal()
        assert len(copy.pages) > 1
        assert len(copy.objects) == 51


@virtual
async def test_bookmarks_keep_a_quiet_feed_young(folder: Path) -> None:
    async with fed(folder) as (store, copy, feed):
        lease = {"metadata": {"name": "x", "namespace": "t"}, "spec": {}}
        from isthmus.resources.kinds import LEASE

        other = await store.real.create(LEASE, validate(LEASE, lease))
        assert feed.version < other.version
        await feed.reached(other.version, 60)
        assert feed.version >= other.version
        assert not copy.changes


@virtual
async def test_reached_does_not_wait_for_ever(folder: Path) -> None:
    async with fed(folder) as (_, _copy, feed):
        await feed.reached(10**9, 5.0)
        assert feed.version < 10**9


def failures() -> float:
    return REGISTRY.get_sample_value("isthmus_task_failures_total", {"task": "feed of jobs"}) or 0.0


@virtual
async def test_whoever_is_fed_may_fail_and_is_fed_again(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        before, left = failures(), [3]

        def hinder() -> None:
            if left[0]:
                left[0] -= 1
                raise KeyError("a mistake of ours")

        copy.hinder = hinder
        await make(store, "a")
        await copy.equal()
        assert failures() == before + 3


@virtual
async def test_pauses_grow_while_the_store_is_away_and_are_short_again_afterwards(folder: Path) -> None:
    async with fed(folder) as (store, copy, _):
        loop = asyncio.get_running_loop()
        store.away = True
        store.disconnect()
        await asyncio.sleep(3600)
        store.away = False
        await make(store, "a")
        began = loop.time()
        await copy.equal()
        assert loop.time() - began < 2 * QUICK.longest_pause
        tries = len(store.watched)
        store.disconnect()
        began = loop.time()
        await make(store, "b")
        await copy.equal()
        assert loop.time() - began < 10 * QUICK.first_pause + 0.1
        assert len(store.watched) == tries + 1


@virtual
async def test_a_list_that_expires_again_and_again_is_not_repeated_without_a_pause(folder: Path) -> None:
    async with fed(folder) as (store, _copy, _):
        loop = asyncio.get_running_loop()
        until, lists = loop.time() + 60, store.lists
        while loop.time() < until:
            store.expire()
            await asyncio.sleep(0.01)
        assert store.lists - lists < 40


@virtual
async def test_a_store_that_was_set_back_is_listed_and_followed_from_there(folder: Path) -> None:
    """Its versions are behind what was reached, and they are believed."""
    async with fed(folder) as (store, copy, feed):
        await make(store, "a")
        await copy.equal()
        await feed.close()
        earlier = SqliteStore(folder / "earlier.db")
        await earlier.open()
        store.real, lost = earlier, store.real
        following = asyncio.create_task(feed.run())
        await copy.equal()
        assert copy.objects == {}
        await make(store, "other")
        await copy.equal()
        assert set(copy.objects) == {"other"}
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await earlier.close()
        store.real = lost


@virtual
async def test_who_only_needs_to_know_that_something_changed_costs_no_list(folder: Path) -> None:
    async with fed(folder, listing=False) as (store, copy, _):
        await make(store, "a")
        store.disconnect()
        await make(store, "b")
        async with asyncio.timeout(60):
            while len(copy.changes) < 2:
                await asyncio.sleep(0.05)
        assert len(copy.pages) == 1
        store.expire()
        async with asyncio.timeout(60):
            while len(copy.pages) < 2:
                await asyncio.sleep(0.05)
        assert store.lists == 0
