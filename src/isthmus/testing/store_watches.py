"""The store contract as a suite: watching."""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar

import pytest

from isthmus.errors import Conflict, Expired, NotFound
from isthmus.resources.frame.selectors import parse_fields, parse_labels
from isthmus.resources.kinds import JOB, SITE
from isthmus.store.base import Change, Changes, EventType, Object, Part, Query, Record, Store
from isthmus.store.settings import StoreSettings

from .stores import PATIENCE, Contract, StoreLocation, changed, job, job_key, site, spec, status

ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


async def take(changes: Changes, count: int) -> list[Change]:
    """The next changes."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(aiter(changes)) for _ in range(count)]


def reported(changes: list[Change]) -> list[tuple[EventType, str]]:
    """What happened to which name."""
    return [(change.type, change.record.key.name) for change in changes if change.record]


@pytest.mark.anyio
class WatchingContract(Contract):
    """Watching."""

    writes: ClassVar[int] = 60
    """Writes of each of several writers while others watch."""
    recent: ClassVar[int] = 20
    """Changes to hold in memory while many write and watch; the others must be found elsewhere, if they can."""

    async def test_every_change_in_order(self, store: Store) -> None:
        """From a version on, once each, with the object as it was then."""
        before = await store.create(JOB, job("before"))
        async with store.watch(Query(JOB), since=await store.version()) as changes:
            record = await store.create(JOB, job("a"))
            updated = await store.update(JOB, changed(record, labels={"x": "1"}))
            gone = await store.delete(record.key)
            await store.delete(before.key)
            got = await take(changes, 4)
        assert reported(got) == [(ADDED, "a"), (MODIFIED, "a"), (DELETED, "a"), (DELETED, "before")]
        assert [change.version for change in got[:3]] == [record.version, updated.version, gone.version]
        assert [change.record and change.record.data for change in got[:3]] == [record.data, updated.data, gone.data]

    async def test_the_present_first(self, store: Store) -> None:
        """Without a version, the objects that are there come as added."""
        for n in range(3):
            await store.create(JOB, job(f"j{n}"))
        async with store.watch(Query(JOB)) as changes:
            await store.delete(job_key("j1"))
            assert reported(await take(changes, 4)) == [(ADDED, "j0"), (ADDED, "j1"), (ADDED, "j2"), (DELETED, "j1")]

    async def test_kind_and_namespace(self, store: Store) -> None:
        """Others are not notified."""
        since = await store.version()
        async with store.watch(Query(JOB, "ada"), since=since) as one, store.watch(Query(JOB), since=since) as all_:
            await store.create(SITE, site("s"))
            await store.create(JOB, job("b", "bob"))
            await store.create(JOB, job("a", "ada"))
            assert reported(await take(one, 1)) == [(ADDED, "a")]
            assert reported(await take(all_, 2)) == [(ADDED, "b"), (ADDED, "a")]

    @pytest.mark.parametrize("replayed", [False, True])
    async def test_what_begins_and_stops_to_match(self, store: Store, replayed: bool) -> None:
        """Is reported as added and deleted, to those who watch and to those who come later."""
        since = await store.version()
        by_label = store.watch(Query(JOB, "ada", parse_labels("on=1")), since=since)
        by_field = store.watch(Query(JOB, None, fields=parse_fields("status.phase=Running", JOB.fields)), since=since)
        by_name = store.watch(Query(JOB, None, fields=parse_fields("metadata.name=b", JOB.fields)), since=since)
        if replayed:
            await self._story(store)
            async with by_label as one, by_field as two, by_name as three:
                await self._check_story(one, two, three)
        else:
            async with by_label as one, by_field as two, by_name as three:
                await self._story(store)
                await self._check_story(one, two, three)

    async def _story(self, store: Store) -> None:
        a = await store.create(JOB, job("a"))
        a = await store.update(JOB, changed(a, labels={"on": "1"}))
        a = await store.update(JOB, changed(a, status=status("Running")), Part.STATUS)
        b = await store.create(JOB, job("b", labels={"on": "1"}))
        a = await store.update(JOB, changed(a, labels={"on": "0"}))
        await store.update(JOB, changed(a, status=status("Failed")), Part.STATUS)
        await store.delete(a.key)
        await store.delete(b.key)

    async def _check_story(self, labels: Changes, fields: Changes, name: Changes) -> None:
        expected = [(ADDED, "a"), (MODIFIED, "a"), (ADDED, "b"), (DELETED, "a"), (DELETED, "b")]
        assert reported(await take(labels, 5)) == expected
        assert reported(await take(fields, 3)) == [(ADDED, "a"), (MODIFIED, "a"), (DELETED, "a")]
        assert reported(await take(name, 2)) == [(ADDED, "b"), (DELETED, "b")]

    async def test_bookmarks(self, store: Store) -> None:
        """They keep a quiet watcher's version young; from a bookmark a watch can go on."""
        async with store.watch(Query(JOB, "quiet"), since=await store.version(), bookmarks=0.02) as changes:
            latest = (await store.create(JOB, job("a"))).version
            async with asyncio.timeout(PATIENCE):
                while (change := await anext(aiter(changes))).version < latest:
                    assert change.type is EventType.BOOKMARK
        assert (change.type, change.record) == (EventType.BOOKMARK, None)
        assert change.version == latest or not self.alone
        assert change.line == (
            b'{"type":"BOOKMARK","object":{"kind":"Job","apiVersion":"isthmus.dev/v1",'
            b'"metadata":{"resourceVersion":"%d","creationTimestamp":null}}}\n' % change.version
        )
        async with store.watch(Query(JOB), since=change.version) as again:
            await store.create(JOB, job("b"))
            assert reported(await take(again, 1)) == [(ADDED, "b")]

    async def test_from_the_future(self, store: Store) -> None:
        """Is Expired before the first change: the store was set back, and the watcher must list again."""
        with pytest.raises(Expired):
            async with store.watch(Query(JOB), since=await store.version() + 100_000):
                pass

    async def test_a_slow_reader_is_dropped_alone(self, location: StoreLocation, store: Store) -> None:
        """It is asked to list again; the others miss nothing."""
        await store.close()
        small = await location.open(StoreSettings(buffer_changes=10))
        since = await small.version()
        async with small.watch(Query(JOB), since=since) as slow, small.watch(Query(JOB), since=since) as quick:
            seen: list[Change] = []
            for n in range(30):
                await small.create(JOB, job(f"j{n}"))
                seen += await take(quick, 1)
            assert reported(seen) == [(ADDED, f"j{n}") for n in range(30)]
            with pytest.raises(Expired):
                await take(slow, 30)
            assert slow.ready() == []

    async def test_a_reader_that_holds_too_many_bytes(self, location: StoreLocation, store: Store) -> None:
        """The bound is on bytes too."""
        await store.close()
        small = await location.open(StoreSettings(buffer_bytes=10_000))
        async with small.watch(Query(JOB), since=await small.version()) as slow:
            await asyncio.gather(
                *(small.create(JOB, {**job(f"j{n}"), "spec": spec(command=["true", "y" * 3000])}) for n in range(5))
            )
            with pytest.raises(Expired):
                await take(slow, 5)

    async def test_ready_takes_all_that_waits(self, store: Store) -> None:
        """So that a sender may join changes; each has its line, made once for all watchers."""
        since = await store.version()
        async with store.watch(Query(JOB), since=since) as one, store.watch(Query(JOB), since=since) as other:
            for n in range(5):
                await store.create(JOB, job(f"j{n}"))
            first, second = await self._collect(one, 5), await self._collect(other, 5)
        assert reported(first) == [(ADDED, f"j{n}") for n in range(5)]
        assert all(a.line is b.line for a, b in zip(first, second, strict=True))
        assert first[0].record is not None
        assert first[0].line == b'{"type":"ADDED","object":' + first[0].record.data + b"}\n"

    async def _collect(self, changes: Changes, count: int) -> list[Change]:
        got: list[Change] = []
        while len(got) < count:
            got += await take(changes, 1)
            got += changes.ready()
        return got

    async def test_leaving_and_cancelling(self, store: Store) -> None:
        """A watcher that is cancelled leaves nothing behind and disturbs nobody."""
        started = asyncio.Event()

        async def follow() -> None:
            async with store.watch(Query(JOB), since=await store.version(), bookmarks=0.01) as changes:
                started.set()
                async for _ in changes:
                    pass

        task = asyncio.create_task(follow())
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        async with store.watch(Query(JOB), since=await store.version()) as changes:
            await store.create(JOB, job("a"))
            assert reported(await take(changes, 1)) == [(ADDED, "a")]

    async def test_closing_ends_watches(self, store: Store) -> None:
        """With Expired."""
        async with store.watch(Query(JOB), since=await store.version()) as changes:
            waiting = asyncio.create_task(take(changes, 1))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(Expired):
                await waiting

    async def test_watchers_see_what_lists_show(self, location: StoreLocation, store: Store) -> None:
        """Many writers and watchers that come at any time: every watcher's view ends as the list does."""
        await store.close()
        busy = await location.open(StoreSettings(recent_changes=self.recent, batch=7))
        chance = random.Random(7)  # noqa: S311
        done = asyncio.Event()

        async def write(writer: int) -> None:
            for _ in range(self.writes):
                await _some_write(busy, chance, f"w{writer}-{chance.randrange(5)}")

        async def watch(since: int | None, late: float) -> dict[str, Any]:
            await asyncio.sleep(late)
            view: dict[str, Any] = {}
            last = 0
            async with busy.watch(Query(JOB), since=since, bookmarks=0.02) as changes:
                async for change in changes:
                    if change.type is EventType.BOOKMARK:
                        if done.is_set() and change.version >= final[0]:
                            return view
                    else:
                        last = _draw(view, change, last if since is not None or change.type is not ADDED else 0)
            raise AssertionError("a watch does not end by itself")

        final = [0]
        start = await busy.version()
        watchers = [asyncio.create_task(watch(start if n % 2 else None, n * 0.01)) for n in range(12)]
        await asyncio.gather(*(write(n) for n in range(8)))
        final[0] = await busy.version()
        done.set()
        async with asyncio.timeout(PATIENCE):
            views = await asyncio.gather(*watchers)
        expected = {r.key.name: r.data for r in (await busy.list(Query(JOB))).records}
        assert all(view == expected for view in views)


async def _some_write(store: Store, chance: random.Random, name: str) -> None:
    try:
        if chance.random() < 0.3:
            await store.delete(job_key(name))
        else:
            record: Record = await store.get(job_key(name))
            new: Object = changed(record, spec=spec(priority=chance.randrange(10**6)))
            await store.update(JOB, new)
    except NotFound:
        try:
            await store.create(JOB, job(name))
        except Conflict:
            return


def _draw(view: dict[str, Any], change: Change, last: int) -> int:
    assert change.record is not None
    assert change.version > last, "in order, and none twice"
    if change.type is DELETED:
        view.pop(change.record.key.name)
    else:
        assert (change.type is ADDED) == (change.record.key.name not in view)
        view[change.record.key.name] = change.record.data
    return change.version


@pytest.mark.anyio
class ReplicasContract(Contract):
    """For stores that may be opened several times at once."""

    async def test_changes_of_the_other_are_told(self, location: StoreLocation, store: Store) -> None:
        """In one order for all."""
        second = await location.open()
        since = await store.version()
        async with store.watch(Query(JOB), since=since) as one, second.watch(Query(JOB), since=since) as two:
            await asyncio.gather(*((store, second)[n % 2].create(JOB, job(f"j{n}")) for n in range(40)))
            first, other = await take(one, 40), await take(two, 40)
        assert reported(first) == reported(other)
        if self.alone:
            assert [change.version for change in first] == list(range(since + 1, since + 41))

    async def test_one_wins(self, location: StoreLocation, store: Store) -> None:
        """Also when they ask different replicas."""
        second = await location.open()
        record = await store.create(JOB, job("a"))
        for turn in range(5):
            specs = [spec(priority=100 * turn + n + 1) for n in range(20)]
            attempts = [(store, second)[n % 2].update(JOB, changed(record, spec=spec)) for n, spec in enumerate(specs)]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            won = [result for result in results if isinstance(result, Record)]
            assert len(won) == 1
            assert sum(isinstance(result, Conflict) for result in results) == 19
            record = won[0]

    async def test_what_one_writes_the_other_reads(self, location: StoreLocation, store: Store) -> None:
        """At once, and may watch from it."""
        second = await location.open()
        for n in range(10):
            record = await store.create(JOB, job(f"j{n}"))
            assert (await second.get(record.key)).data == record.data
            page = await second.list(Query(JOB))
            assert page.version == record.version or not self.alone
            async with second.watch(Query(JOB), since=page.version) as changes:
                again = await second.update(JOB, changed(record, labels={"x": "1"}))
                assert [change.version for change in await take(changes, 1)] == [again.version]
