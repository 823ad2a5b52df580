"""Random histories: the store does what a few lines of Python say it should."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.errors import AlreadyExists, Conflict, Invalid, IsthmusError, NotFound
from isthmus.resources.frame.selectors import Selector, parse_labels
from isthmus.resources.kinds import JOB
from isthmus.store.base import EventType, Part, Query, Store
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.postgres import Postgres
from isthmus.testing.stores import PATIENCE, job, job_key

NAMES = st.sampled_from(["a", "b", "c"])
LABELS = st.dictionaries(st.sampled_from(["x", "y/z"]), st.sampled_from(["", "1", "2"]), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, LABELS, st.booleans()),
    st.tuples(st.just("labels"), NAMES, LABELS, st.booleans()),
    st.tuples(st.just("spec"), NAMES, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("status"), NAMES, st.integers(0, 2), st.booleans()),
    st.tuples(st.just("free"), NAMES, st.none(), st.booleans()),
    st.tuples(st.just("delete"), NAMES, st.none(), st.booleans()),
)
SELECTORS = [parse_labels(text) for text in ("", "x=1", "x!=1", "x", "!x", "y/z in (1,2)", "y/z notin (1)", "x=")]


@dataclass
class Thing:
    """What the model knows of one object."""

    labels: dict[str, str]
    version: int
    spec: Any = 0
    status: Any = 0
    held: bool = False
    deleting: bool = False
    generation: int = 1


@dataclass
class Model:
    """A store in a few lines. Each step answers with the error expected."""

    version: int = 0
    things: dict[str, Thing] = field(default_factory=dict)

    def step(self, what: str, name: str, value: Any, flag: bool) -> type[IsthmusError] | None:
        thing = self.things.get(name)
        if what == "create":
            if thing:
                return AlreadyExists
            self.version += 1
            self.things[name] = Thing(value, self.version, held=flag)
            return None
        if thing is None:
            return NotFound
        if what == "delete":
            self._delete(name, thing)
            return None
        if flag:  # with a version that is out of date
            return Conflict
        self._update(what, name, thing, value)
        return None

    def _delete(self, name: str, thing: Thing) -> None:
        if not thing.held:
            del self.things[name]
        elif thing.deleting:
            return
        thing.deleting = True
        self.version += 1
        thing.version = self.version

    def _update(self, what: str, name: str, thing: Thing, value: Any) -> None:
        attribute = "held" if what == "free" else what
        new = False if what == "free" else value
        if getattr(thing, attribute) == new:
            return
        setattr(thing, attribute, new)
        thing.generation += what == "spec"
        self.version += 1
        thing.version = self.version
        if thing.deleting and not thing.held:
            del self.things[name]


async def do(store: Store, what: str, name: str, value: Any, flag: bool) -> None:
    if what == "create":
        sent = job(name, labels=value, finalizers=["x/held"] if flag else [])
        await store.create(JOB, {**sent, "spec": {"n": 0}, "status": {"n": 0}})
        return
    if what == "delete":
        await store.delete(job_key(name))
        return
    old = await store.get(job_key(name))
    meta = dict(old.obj["metadata"])
    if flag:
        meta["resourceVersion"] = str(old.version + 1000)
    new = {**old.obj, "metadata": meta}
    if what in ("labels", "free"):
        meta["labels" if what == "labels" else "finalizers"] = value or ({} if what == "labels" else [])
    else:
        new[what] = {"n": value}
    await store.update(JOB, new, Part.STATUS if what == "status" else Part.SPEC)


async def outcome(store: Store, step: tuple[str, str, Any, bool]) -> type[IsthmusError] | None:
    try:
        await do(store, *step)
    except (NotFound, Conflict, Invalid) as error:
        return type(error)
    return None


async def follow(store: Store, selector: Selector, since: int, until: int) -> dict[str, bytes]:
    """The picture that a watcher has at a version."""
    picture: dict[str, bytes] = {}
    async with (
        asyncio.timeout(PATIENCE),
        store.watch(Query(JOB, "ada", selector), since=since, bookmarks=0.01) as changes,
    ):
        async for change in changes:
            if change.record is None:
                if change.version >= until:
                    return picture
                continue
            name = change.record.key.name
            if change.type is EventType.DELETED:
                del picture[name]
            else:
                assert (change.type is EventType.ADDED) == (name not in picture)
                picture[name] = change.record.data
    raise AssertionError


async def check_history(store: Store, steps: list[tuple[str, str, Any, bool]]) -> None:
    model = Model()
    for step in steps:
        expected = model.step(*step)
        assert await outcome(store, step) is expected, step
        assert await store.version() == model.version
    for selector in SELECTORS:
        wanted = {name: thing for name, thing in sorted(model.things.items()) if selector.matches(thing.labels)}
        page = await store.list(Query(JOB, "ada", selector))
        assert [record.key.name for record in page.records] == list(wanted)
        for record, thing in zip(page.records, wanted.values(), strict=True):
            assert record.version == thing.version
            assert record.obj["spec"] == {"n": thing.spec}
            assert record.obj["status"] == {"n": thing.status}
            assert record.obj["metadata"]["generation"] == thing.generation
            assert ("deletionTimestamp" in record.obj["metadata"]) == thing.deleting
        picture = await follow(store, selector, 0, model.version)
        assert picture == {record.key.name: record.data for record in page.records}


SMALL = StoreSettings(recent_changes=3, poll_interval=0.05)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, max_size=25))
def test_sqlite_does_what_the_model_says(steps: list[tuple[str, str, Any, bool]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = await open_store(Path(folder) / "db", SMALL)
            await check_history(store, steps)
            await store.close()

    asyncio.run(run())


@pytest.mark.real
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=25))
def test_postgres_does_what_the_model_says(postgres: Postgres, steps: list[tuple[str, str, Any, bool]]) -> None:
    async def run() -> None:
        schema = f"t_{uuid.uuid4().hex}"
        store = await open_store(postgres.url, StoreSettings(schema=schema, recent_changes=3, poll_interval=0.05))
        await check_history(store, steps)
        await store.close()

    asyncio.run(run())
