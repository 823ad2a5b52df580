"""Parts of the control plane: what wakes them, in which order they begin, and what happens when one fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB, SITE, TENANT, Kind
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import (
    Background,
    Observes,
    PlanePart,
    Reconciler,
    Watches,
    both,
    either,
    every,
    exists,
    handler_order,
    kinds_of,
    owners,
    spec_changed,
    start_order,
    status_changed,
)
from isthmus.runtime.managing import Informers, Manager, Queues
from isthmus.store.base import Key, Record, Store
from isthmus.store.base import Part as ObjectPart
from isthmus.store.opening import open_store
from isthmus.testing.virtual_time import on_virtual_time


def record(**parts: Any) -> Record:
    import orjson

    body = {"metadata": {"name": "x", "generation": 1}, "status": {}, **parts}
    return Record(Key("Job", "t", "x"), body["metadata"].get("uid", "u"), 1, orjson.dumps(body))


async def nothing(_: Key) -> Result:
    return DONE


async def forever() -> None:
    await asyncio.Event().wait()


def part(name: str, **more: Any) -> PlanePart:
    return Background(name=name, run=forever, **more)


def reconciler(name: str, kind: Kind, **more: Any) -> Reconciler:
    return Reconciler(**{"name": name, "kind": kind, "reconcile": nothing, "workers": 1, **more})


# What matters


def test_spec_changed() -> None:
    old = record()
    assert spec_changed(None, old)
    assert spec_changed(old, None)
    assert spec_changed(old, record(metadata={"name": "x", "generation": 2}))
    assert spec_changed(old, record(metadata={"name": "x", "generation": 1, "labels": {"a": "b"}}))
    assert spec_changed(old, record(metadata={"name": "x", "generation": 1, "deletionTimestamp": "now"}))
    assert spec_changed(old, record(metadata={"name": "x", "generation": 1, "uid": "another"}))
    assert not spec_changed(old, record(status={"phase": "Ready"}))


def test_status_changed() -> None:
    old, changed = record(status={"phase": "A", "message": "m"}), status_changed("phase", "nodes")
    assert changed(None, old)
    assert changed(old, None)
    assert changed(old, record(status={"phase": "B", "message": "m"}))
    assert not changed(old, record(status={"phase": "A", "message": "another"}))
    assert not status_changed("phase")(record(status=None), record())


def test_conditions_are_joined() -> None:
    new = record()
    assert both(exists, spec_changed)(None, new)
    assert not both(exists, spec_changed)(new, None)
    assert either(exists, spec_changed)(new, None)
    assert not either(status_changed("phase"), spec_changed)(new, new)


def test_owners_of_a_kind_are_found() -> None:
    references = [{"kind": "Experiment", "name": "e", "uid": "1"}, {"kind": "Job", "name": "j", "uid": "2"}]
    owned = record(metadata={"name": "x", "ownerReferences": references})
    assert list(owners(JOB)(owned)) == [Key("Job", "t", "j")]
    assert list(owners(TENANT)(owned)) == []
    assert list(owners(JOB)(record())) == []


# Order


def names(parts: list[PlanePart]) -> list[str]:
    return [one.name for one in parts]


def test_parts_begin_after_those_that_they_name() -> None:
    groups = start_order([part("jobs", after=("sites",)), part("placer"), part("sites"), part("last", after=("jobs",))])
    assert [names(group) for group in groups] == [["placer", "sites"], ["jobs"], ["last"]]


@pytest.mark.parametrize(
    "parts",
    [
        [part("a", after=("b",)), part("b", after=("a",))],
        [part("a", after=("missing",))],
        [part("a"), part("a")],
    ],
)
def test_an_order_that_cannot_be_is_refused(parts: list[PlanePart]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        start_order(parts)


def test_handlers_come_as_listed_unless_one_says_that_it_comes_before() -> None:
    def changed(_old: Record | None, _new: Record | None) -> None: ...

    first = part("first", observes=(Observes(JOB, changed),))
    last = part("last", observes=(Observes(JOB, changed, before=("first",)), Observes(SITE, changed)))
    assert names(handler_order([first, part("other"), last], JOB)) == ["last", "first", "other"]
    assert names(handler_order([first, part("other"), last], SITE)) == ["first", "other", "last"]
    again = part("first", observes=(Observes(JOB, changed, before=("last",)),))
    with pytest.raises(ValueError, match="cycle"):
        handler_order([again, last], JOB)


def test_what_is_owned_is_watched_unless_it_is_observed() -> None:
    def changed(_old: Record | None, _new: Record | None) -> None: ...

    owning = reconciler("sites", SITE, owns=(JOB,), watches=(Watches(SITE),))
    assert {kind.name for kind in kinds_of([owning])} == {"Site", "Job"}
    assert [watch.kind.name for watch in owning.all_watches()] == ["Site", "Job"]
    observing = reconciler("sites", SITE, owns=(JOB,), observes=(Observes(JOB, changed),))
    assert observing.all_watches() == []


# Running them


class World:
    """Parts over a store, and what they did."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.informers, self.queues = Informers(store), Queues()
        self.seen: list[str] = []

    async def create(self, kind: Kind, name: str, spec: dict[str, Any] | None = None, **meta: Any) -> Record:
        namespace = {"namespace": "t"} if kind.namespaced else {}
        obj = {"kind": kind.name, "metadata": {"name": name, **namespace, **meta}, "spec": spec or {}}
        return await self.store.create(kind, validate(kind, obj))

    def notes(self, name: str) -> Callable[[Key], Coroutine[Any, Any, Result]]:
        async def reconcile(key: Key) -> Result:
            self.seen.append(f"{name} {key.name}")
            return DONE

        return reconcile

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(3600):
            while not holds():
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def running(self, *parts: PlanePart) -> AsyncIterator[None]:
        task = asyncio.create_task(Manager(parts, self.informers, self.queues).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def virtual(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def whole() -> None:
            store = await open_store(tmp_path / "x.db")
            try:
                await test(World(store))
            finally:
                await store.close()

        on_virtual_time(whole())

    run.__name__ = test.__name__
    return run


SPEC = {"driver": "local"}


@virtual
async def test_changes_that_matter_reach_the_keys_they_concern(world: World) -> None:
    await world.create(SITE, "a", SPEC)
    await world.create(SITE, "b", SPEC)
    sites = reconciler(
        "sites",
        SITE,
        reconcile=world.notes("sites"),
        watches=(
            Watches(SITE, when=spec_changed),
            Watches(TENANT, when=exists, keys=every(world.informers.of(SITE))),
        ),
    )
    async with world.running(sites):
        await world.until(lambda: sorted(world.seen) == ["sites a", "sites b"])
        known = await world.store.get(Key("Site", "", "a"))
        changed = {**known.obj, "status": {**known.obj["status"], "message": "only the status"}}
        await world.store.update(SITE, changed, ObjectPart.STATUS)
        await asyncio.sleep(10)
        assert len(world.seen) == 2
        await world.create(TENANT, "t")
        await world.until(lambda: len(world.seen) == 4)
        await world.store.delete(Key("Site", "", "b"))
        await world.until(lambda: world.seen[-1] == "sites b")


@virtual
async def test_a_change_of_what_it_owns_is_a_look_at_the_owner(world: World) -> None:
    owner = await world.create(SITE, "owner", SPEC)
    sites = reconciler("sites", SITE, reconcile=world.notes("sites"), owns=(JOB,))
    reference = {"apiVersion": "isthmus.dev/v1", "kind": "Site", "name": "owner", "uid": owner.uid}
    async with world.running(sites):
        await world.create(JOB, "owned", {"command": ["true"]}, ownerReferences=[reference])
        await world.until(lambda: world.seen == ["sites owner"])


@virtual
async def test_nobody_begins_before_those_it_waits_for_are_ready(world: World) -> None:
    looked = asyncio.Event()

    async def look() -> None:
        await asyncio.sleep(100)
        looked.set()
        await forever()

    async def act() -> None:
        world.seen.append("acts" if looked.is_set() else "too early")
        await forever()

    async def ready() -> None:
        await looked.wait()

    async def meanwhile() -> None:
        world.seen.append("meanwhile")
        await forever()

    acts, looks = Background(name="acts", run=act, after=("looks",)), Background(name="looks", run=look, ready=ready)
    async with world.running(acts, looks, Background(name="other", run=meanwhile)):
        await world.until(lambda: len(world.seen) == 2)
    assert world.seen == ["meanwhile", "acts"]


def failures(task: str) -> float:
    return REGISTRY.get_sample_value("isthmus_task_failures_total", {"task": task}) or 0.0


@virtual
async def test_a_part_that_fails_is_counted_and_started_again_while_the_others_go_on(world: World) -> None:
    starts: list[float] = []

    async def fails() -> None:
        starts.append(asyncio.get_running_loop().time())
        raise KeyError("a mistake of ours")

    async def goes_on() -> None:
        while True:
            await asyncio.sleep(1)
            world.seen.append("alive")

    before = failures("fails")
    async with world.running(Background(name="fails", run=fails), Background(name="goes on", run=goes_on)):
        await world.until(lambda: len(starts) >= 9)
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(later >= 0.99 * earlier for earlier, later in itertools.pairwise(pauses)), "they grow"
    assert max(pauses) < 35, "but not for ever"
    assert failures("fails") - before == len(starts)
    assert len(world.seen) > 50


@virtual
async def test_a_reconciler_that_is_started_again_looks_at_everything(world: World) -> None:
    await world.create(SITE, "a", SPEC)
    await world.create(SITE, "b", SPEC)
    queue = world.queues.of("sites")
    sites = reconciler("sites", SITE, reconcile=world.notes("sites"), watches=(Watches(SITE),))
    failing, done = [True], queue.done

    def broken(key: Key) -> None:
        done(key)
        if failing[0]:
            failing[0] = False
            raise RuntimeError("the queue itself")

    queue.done = broken  # type: ignore[method-assign]
    before = failures("sites")
    async with world.running(sites):
        await world.until(lambda: failures("sites") == before + 1 and {"sites a", "sites b"} <= set(world.seen[1:]))


@virtual
async def test_a_handler_that_fails_over_one_object_hinders_nobody_else(world: World) -> None:
    def fails(_old: Record | None, new: Record | None) -> None:
        if new is not None and new.key.name == "bad":
            raise KeyError("cannot read this")
        world.seen.append("observed")

    observing = part("index", observes=(Observes(SITE, fails),))
    sites = reconciler("sites", SITE, reconcile=world.notes("sites"), watches=(Watches(SITE),))
    before = failures("informer of sites")
    async with world.running(observing, sites):
        await world.create(SITE, "bad", SPEC)
        await world.create(SITE, "good", SPEC)
        await world.until(lambda: {"sites bad", "sites good", "observed"} <= set(world.seen))
    assert failures("informer of sites") == before + 1


@virtual
async def test_everything_is_closed_in_the_end(world: World) -> None:
    async def close() -> None:
        await asyncio.sleep(1)
        world.seen.append("closed")

    async with world.running(part("one", close=close), part("two", close=close)):
        await asyncio.sleep(1)
    assert world.seen == ["closed", "closed"]
