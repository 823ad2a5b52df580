"""The store contract as a suite: writing and listing. `store_deletions` and `store_watches` have the rest.

A store is held to it by a test class that inherits from the suites and offers two fixtures: `location`, which opens
stores on one and the same data, and `store`, one that is open with the default settings. All objects here are whole and
valid: some stores check them. `Contract` says what a store may differ in; `store_logs` is for those with a log of their
own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

import pytest

from isthmus.errors import AlreadyExists, Conflict, Invalid, IsthmusError, NotFound
from isthmus.resources.frame.selectors import parse_fields, parse_labels
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EVENT, JOB, LEASE, SITE
from isthmus.store.base import Key, Object, Part, Query, Record, Store
from isthmus.store.settings import StoreSettings

PATIENCE = 30.0


class StoreLocation(Protocol):
    """Where the data of a test lives."""

    async def open(self, settings: StoreSettings | None = None) -> Store:
        """A store on it. It is closed after the test, if the test has not done so."""
        ...


class Contract:
    """What a store may differ in."""

    alone: ClassVar[bool] = True
    """Nobody else writes into it: versions can be counted."""
    at_once: ClassVar[bool] = True
    """What follows from a deletion for others is done when it is acknowledged, not a moment later."""
    many: ClassVar[int] = 1200
    """Objects that are more than what is read at once."""

    async def comes_true(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        """It holds: now, or soon."""
        if self.at_once:
            assert await check(), what
            return
        try:
            async with asyncio.timeout(PATIENCE):
                while not await check():  # noqa: ASYNC110 - others do it, and notify nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(what) from None

    async def gone(self, store: Store, *keys: Key) -> None:
        """None of them is there: now, or soon."""
        for key in keys:
            await self.comes_true(lambda key=key: _is_gone(store, key), f"{key} is gone")  # type: ignore[misc]

    async def never_stays(self, store: Store, obj: Object) -> None:
        """Nothing would ever collect this job: it is refused, or collected at once."""
        if self.at_once:
            with pytest.raises(Invalid):
                await store.create(JOB, obj)
        else:
            await self.gone(store, (await store.create(JOB, obj)).key)


async def _is_gone(store: Store, key: Key) -> bool:
    return not await exists(store, key)


def job(name: str, namespace: str = "ada", **metadata: Any) -> Object:
    """A small job."""
    whole = {"metadata": {"name": name, "namespace": namespace}, "spec": {"command": ["true"]}}
    obj = validate(JOB, whole)
    obj["metadata"].update(metadata)
    return obj


def spec(**fields: Any) -> Object:
    """The spec of a small job."""
    return {**job("x")["spec"], **fields}


def status(phase: str) -> Object:
    """The status of a job in a phase."""
    return {**job("x")["status"], "phase": phase}


def site(name: str) -> Object:
    """A small site."""
    return validate(SITE, {"metadata": {"name": name}, "spec": {"driver": "local"}})


def job_key(name: str, namespace: str = "ada") -> Key:
    """Where `job(name)` is kept."""
    return Key("Job", namespace, name)


def owned_by(owner: Record, *others: Record) -> dict[str, Any]:
    """Metadata that names owners."""
    return {
        "ownerReferences": [
            {
                "apiVersion": "isthmus.dev/v1",
                "kind": o.key.kind,
                "name": o.key.name,
                "uid": o.uid,
                "blockOwnerDeletion": True,
            }
            for o in (owner, *others)
        ]
    }


def changed(record: Record, **parts: Any) -> Object:
    """A copy of an object with parts replaced: `spec`, `status`, or fields of the metadata."""
    new = {**record.obj, "metadata": dict(record.obj["metadata"])}
    for name, value in parts.items():
        (new if name in ("spec", "status") else new["metadata"])[name] = value
    return new


async def exists(store: Store, key: Key) -> bool:
    """Whether there is such an object."""
    try:
        await store.get(key)
    except NotFound:
        return False
    return True


async def names(store: Store, query: Query) -> list[str]:
    """The names of the objects that match, in order."""
    return [record.key.name for record in (await store.list(query)).records]


@pytest.mark.anyio
class WritingContract(Contract):
    """Creating and updating."""

    async def test_create_fills_the_metadata_it_owns(self, store: Store) -> None:
        """The store owns uid, versions and times, and drops what only Kubernetes keeps."""
        sent = job(
            "a", uid="mine", generation=9, managedFields=[{}], selfLink="/x", deletionTimestamp="2020-01-01T00:00:00Z"
        )
        record = await store.create(JOB, sent)
        meta = record.obj["metadata"]
        assert meta["uid"] == record.uid != "mine"
        assert meta["resourceVersion"] == str(record.version)
        assert meta["generation"] == 1
        assert len(meta["creationTimestamp"]) == len("2026-01-01T00:00:00Z")
        assert not {"managedFields", "selfLink", "deletionTimestamp"} & set(meta)
        assert sent["metadata"]["uid"] == "mine", "the caller's object is not touched"
        found = await store.get(record.key)
        assert (found.uid, found.version, found.data) == (record.uid, record.version, record.data)
        assert await store.version() >= record.version
        if self.alone:
            assert await store.version() == record.version

    async def test_a_name_is_taken_once(self, store: Store) -> None:
        """Names are unique per kind and namespace."""
        await store.create(JOB, job("a"))
        with pytest.raises(AlreadyExists):
            await store.create(JOB, job("a"))
        await store.create(JOB, job("a", "bob"))

    @pytest.mark.parametrize(
        "metadata",
        [{}, {"name": ""}, {"name": "a"}, {"name": "a b", "namespace": "x"}, {"name": "a\0", "namespace": "x"}],
    )
    async def test_an_object_says_where_it_belongs(self, store: Store, metadata: dict[str, str]) -> None:
        """A job without a usable name or namespace is refused."""
        with pytest.raises(Invalid):
            await store.create(JOB, {"metadata": metadata})

    @pytest.mark.parametrize("value", [2**70, "\ud800", {1, 2}])
    async def test_what_is_not_json_is_refused(self, store: Store, value: object) -> None:
        """And the store goes on."""
        with pytest.raises(Invalid):
            await store.create(JOB, {**job("a"), "spec": value})
        await store.create(JOB, job("a"))

    async def test_nesting_without_end_is_refused(self, store: Store) -> None:
        """A document nested a thousand deep is no manifest."""
        deep: Any = "x"
        for _ in range(1000):
            deep = [deep]
        with pytest.raises(Invalid):
            await store.create(JOB, {**job("a"), "spec": deep})
        assert not await exists(store, job_key("a"))

    async def test_any_text_is_kept(self, store: Store) -> None:
        """Also what databases find difficult."""
        text = "a\0b\n\u2028 ' \" \\ \U0001f600"
        record = await store.create(JOB, {**job("a"), "spec": spec(command=["echo", text])})
        assert (await store.get(record.key)).obj["spec"]["command"] == ["echo", text]
        assert [r.obj["spec"]["command"][1] for r in (await store.list(Query(JOB))).records] == [text]

    async def test_a_nul_in_a_label_is_refused_alone(self, store: Store) -> None:
        """What a database could not keep does not disturb the others of its batch."""
        results = await asyncio.gather(
            *(store.create(JOB, job(f"j{n}", labels={"x": "\0"} if n == 5 else {})) for n in range(10)),
            return_exceptions=True,
        )
        assert [isinstance(result, Invalid) for result in results] == [n == 5 for n in range(10)]

    async def test_get_of_what_is_not_there(self, store: Store) -> None:
        """NotFound."""
        with pytest.raises(NotFound):
            await store.get(job_key("a"))
        with pytest.raises(NotFound):
            await store.update(JOB, job("a"))
        with pytest.raises(NotFound):
            await store.delete(job_key("a"))

    async def test_a_stale_version_is_a_conflict(self, store: Store) -> None:
        """An update compares the version it was read with, when it carries one."""
        old = await store.create(JOB, job("a"))
        new = await store.update(JOB, changed(old, labels={"x": "1"}))
        assert new.version > old.version
        with pytest.raises(Conflict):
            await store.update(JOB, changed(old, labels={"x": "2"}))
        free = changed(old, labels={"x": "3"})
        del free["metadata"]["resourceVersion"]
        assert (await store.update(JOB, free)).obj["metadata"]["labels"] == {"x": "3"}
        with pytest.raises(Conflict):
            await store.update(JOB, job("a", uid="another"))
        with pytest.raises(Invalid):
            await store.update(JOB, job("a", resourceVersion="abc"))

    async def test_parts(self, store: Store) -> None:
        """An update replaces the spec, the status, or both, and nothing else."""
        record = await store.create(JOB, job("a"))
        both = changed(record, labels={"l": "1"}, spec=spec(priority=1), status=status("Running"))
        both["metadata"].pop("resourceVersion")

        def parts(obj: Object) -> tuple[Object, Object, Object]:
            return obj["spec"], obj["status"], obj["metadata"]["labels"]

        assert parts((await store.update(JOB, both)).obj) == (spec(priority=1), status("Pending"), {"l": "1"})
        both = {**both, "spec": spec(priority=2), "metadata": {**both["metadata"], "labels": {"l": "2"}}}
        seen = (await store.update(JOB, both, Part.STATUS)).obj
        assert parts(seen) == (spec(priority=1), status("Running"), {"l": "1"})
        whole = (await store.update(JOB, {**both, "status": status("Failed")}, Part.WHOLE)).obj
        assert parts(whole) == (spec(priority=2), status("Failed"), {"l": "2"})

    async def test_generation_follows_the_spec_alone(self, store: Store) -> None:
        """Labels and status leave it."""
        record = await store.create(JOB, job("a"))
        record = await store.update(JOB, changed(record, labels={"x": "1"}))
        record = await store.update(JOB, changed(record, status=status("Running")), Part.STATUS)
        assert record.obj["metadata"]["generation"] == 1
        record = await store.update(JOB, changed(record, spec=spec(priority=2), generation=77))
        assert record.obj["metadata"]["generation"] == 2
        record = await store.update(JOB, changed(record, spec=spec(priority=3)), Part.WHOLE)
        assert record.obj["metadata"]["generation"] == 3

    async def test_nothing_changed_makes_no_version(self, store: Store) -> None:
        """Whatever the order of the keys."""
        record = await store.create(JOB, job("a", labels={"x": "1", "y": "2"}))
        again = changed(record, labels={"y": "2", "x": "1"}, annotations={}, finalizers=[], managedFields=[1])
        assert (await store.update(JOB, again)).version == record.version
        assert (await store.update(JOB, again, Part.STATUS)).version == record.version
        assert (await store.update(JOB, again, Part.WHOLE)).version == record.version
        assert (await store.get(record.key)).version == record.version

    async def test_identity_cannot_be_changed(self, store: Store) -> None:
        """Times and deletion marks of the caller are ignored."""
        record = await store.create(JOB, job("a"))
        forged = changed(
            record,
            creationTimestamp="1999-01-01T00:00:00Z",
            deletionTimestamp="1999-01-01T00:00:00Z",
            labels={"x": "1"},
        )
        meta = (await store.update(JOB, forged)).obj["metadata"]
        assert meta["creationTimestamp"] == record.obj["metadata"]["creationTimestamp"]
        assert "deletionTimestamp" not in meta

    async def test_one_wins_per_version(self, store: Store) -> None:
        """Of many who change the same version, one succeeds and the others learn it."""
        record = await store.create(JOB, job("a"))
        for turn in range(5):
            attempts = [store.update(JOB, changed(record, spec=spec(priority=100 * turn + n + 1))) for n in range(20)]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            won = [result for result in results if isinstance(result, Record)]
            assert len(won) == 1
            assert sum(isinstance(result, Conflict) for result in results) == 19
            record = won[0]
            assert (await store.get(record.key)).version == record.version

    async def test_versions_are_one_sequence(self, store: Store) -> None:
        """All objects share one sequence without doubles; a failure takes no number and disturbs nobody."""
        start = await store.version()
        results = await asyncio.gather(
            *(store.create(JOB, job(f"j{n % 40}")) for n in range(60)), return_exceptions=True
        )
        made = sorted(result.version for result in results if isinstance(result, Record))
        assert len(set(made)) == 40
        assert made[0] > start
        if self.alone:
            assert made == list(range(start + 1, start + 41))
        assert sum(isinstance(result, AlreadyExists) for result in results) == 20

    async def test_kinds_without_status_and_namespace(self, store: Store) -> None:
        """Sites belong to nobody, events have no spec."""
        here = await store.create(SITE, site("here"))
        assert here.key == Key("Site", "", "here")
        assert here.obj["apiVersion"] == "isthmus.dev/v1"
        about = {"kind": "Job", "namespace": "ada", "name": "a"}
        event = {
            "metadata": {"name": "e", "namespace": "ada"}, "involvedObject": about, "reason": "Started", "count": 1,
        }  # fmt: skip
        await store.create(EVENT, event)
        assert (await store.update(EVENT, {**event, "count": 2})).obj["count"] == 2

    async def test_a_lease_has_one_holder(self, store: Store) -> None:
        """Leader election is compare-and-swap: of two who take an expired lease, one gets it."""
        await compete_for_lease(store, store)

    async def test_it_survives_closing(self, location: StoreLocation, store: Store) -> None:
        """Objects and versions are there after opening again."""
        records = [await store.create(JOB, job(f"j{n}")) for n in range(5)]
        await store.delete(records[0].key)
        version = await store.version()
        await store.close()
        with pytest.raises(IsthmusError):
            await store.create(JOB, job("late"))
        again = await location.open()
        assert await again.version() >= version
        assert [(r.uid, r.data) for r in (await again.list(Query(JOB))).records] == [
            (r.uid, r.data) for r in records[1:]
        ]
        new = await again.create(JOB, job("new"))
        assert new.version == version + 1 if self.alone else new.version > version


async def compete_for_lease(one: Store, other: Store, rounds: int = 10) -> None:
    """Two holders take the same lease again and again; each time one of them gets it."""
    lease = {"metadata": {"name": "leader", "namespace": "isthmus-system"}, "spec": {"holderIdentity": ""}}
    current = await one.create(LEASE, lease)
    for turn in range(rounds):
        attempts = [
            store.update(LEASE, changed(current, spec={"holderIdentity": who, "leaseTransitions": turn}))
            for who, store in (("one", one), ("other", other))
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        won = [result for result in results if isinstance(result, Record)]
        assert len(won) == 1
        assert any(isinstance(result, Conflict) for result in results)
        current = await other.get(won[0].key)
        assert current.obj["spec"]["holderIdentity"] == won[0].obj["spec"]["holderIdentity"]


@pytest.mark.anyio
class ListingContract(Contract):
    """Selectors and pages."""

    async def test_order_and_namespaces(self, store: Store) -> None:
        """By namespace and name, byte by byte."""
        for namespace, name in (("b", "x"), ("a", "z"), ("a", "a-b"), ("a", "a.b"), ("a", "a0")):
            await store.create(JOB, job(name, namespace))
        page = await store.list(Query(JOB))
        assert [r.key[1:] for r in page.records] == [("a", "a-b"), ("a", "a.b"), ("a", "a0"), ("a", "z"), ("b", "x")]
        assert page.version <= await store.version()
        if self.alone:
            assert page.version == await store.version()
        assert page.continue_ is None
        assert await names(store, Query(JOB, "b")) == ["x"]
        assert await names(store, Query(SITE)) == []

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("app=web", "ab"), ("app!=web", "cde"), ("app in (web, db)", "abc"), ("app notin (web,db)", "de"),
            ("tier", "b"), ("!tier", "acde"), ("app=web,!tier", "a"), ("example.org/x.y-z=1", "d"), ("app=", ""),
        ],
    )  # fmt: skip
    async def test_labels(self, store: Store, selector: str, expected: str) -> None:
        """Every form of a label selector, as Kubernetes means it."""
        for name, labels in {
            "a": {"app": "web"}, "b": {"app": "web", "tier": "1"}, "c": {"app": "db"},
            "d": {"example.org/x.y-z": "1"}, "e": {},
        }.items():  # fmt: skip
            await store.create(JOB, job(name, labels=labels))
        assert await names(store, Query(JOB, "ada", parse_labels(selector))) == list(expected)

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("status.phase=Pending", "a"), ("status.phase!=Pending", "bcx"), ("spec.priority=5", "b"),
            ("metadata.name=b", "b"), ("metadata.name!=b", "acx"), ("metadata.namespace=bob", "x"),
            ("status.phase=Running,metadata.name=c", "c"),
        ],
    )  # fmt: skip
    async def test_fields(self, store: Store, selector: str, expected: str) -> None:
        """The fields that the kind lets be selected, and where an object lives."""
        await store.create(JOB, job("a"))
        await store.create(JOB, {**job("b"), "spec": spec(priority=5), "status": status("Queued")})
        await store.create(JOB, {**job("c"), "status": status("Running")})
        await store.create(JOB, {**job("x", "bob"), "status": status("Running")})
        assert await names(store, Query(JOB, None, fields=parse_fields(selector, JOB.fields))) == list(expected)

    async def test_selectors_follow_updates(self, store: Store) -> None:
        """What was listed a moment ago is not listed again when it stopped matching."""
        query = Query(JOB, "ada", fields=parse_fields("status.phase=Pending", JOB.fields))
        record = await store.create(JOB, job("a"))
        assert await names(store, query) == ["a"]
        await store.update(JOB, changed(record, status=status("Running")), Part.STATUS)
        assert await names(store, query) == []

    @pytest.mark.parametrize("namespace", ["ada", None])
    async def test_pages(self, store: Store, namespace: str | None) -> None:
        """Pages cover everything once and report the version of the first."""
        for n in range(7):
            await store.create(JOB, job(f"j{n}", "ada" if namespace or n < 3 else "bob", labels={"odd": str(n % 2)}))
        for query, expected in (
            (Query(JOB, namespace), list(range(7))),
            (Query(JOB, namespace, parse_labels("odd=1")), [1, 3, 5]),
        ):
            page = await store.list(query, limit=2)
            first, seen = page.version, [*page.records]
            while page.continue_:
                await store.create(SITE, site(f"s{await store.version()}"))
                page = await store.list(query, limit=2, continue_=page.continue_)
                assert page.version == first
                assert len(page.records) <= 2
                seen += page.records
            assert [record.key.name for record in seen] == [f"j{n}" for n in expected]
        assert (await store.list(Query(JOB, namespace), limit=7)).continue_ is None

    async def test_a_long_list(self, store: Store) -> None:
        """Longer than what is read at once."""
        await asyncio.gather(*(store.create(JOB, job(f"j{n:04}", f"n{n % 3}")) for n in range(self.many)))
        assert len((await store.list(Query(JOB))).records) == self.many
        limit = self.many * 7 // 12
        page = await store.list(Query(JOB), limit=limit)
        rest = await store.list(Query(JOB), limit=limit, continue_=page.continue_)
        assert len({r.key for r in (*page.records, *rest.records)}) == self.many
        assert all(r.obj["metadata"]["name"] == r.key.name for r in rest.records)

    async def test_a_watch_from_a_first_page_misses_nothing(self, store: Store) -> None:
        """What is created behind the reader's back is reported by the watch."""
        for n in range(4):
            await store.create(JOB, job(f"j{n}"))
        page = await store.list(Query(JOB), limit=2)
        await store.create(JOB, job("a-before"))
        rest = await store.list(Query(JOB), limit=9, continue_=page.continue_)
        known = {r.key.name for r in (*page.records, *rest.records)}
        async with store.watch(Query(JOB), since=rest.version) as changes:
            change = await asyncio.wait_for(anext(aiter(changes)), PATIENCE)
            assert change.record is not None
            known.add(change.record.key.name)
        assert known == {"j0", "j1", "j2", "j3", "a-before"}

    @pytest.mark.parametrize("token", ["x", "bm90IGpzb24", "WzFd", "WyJhIiwgImIiLCAiYyJd"])
    async def test_a_foreign_token_is_refused(self, store: Store, token: str) -> None:
        """Continue tokens are ours."""
        with pytest.raises(Invalid):
            await store.list(Query(JOB), limit=1, continue_=token)
