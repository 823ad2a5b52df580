"""The store contract as a suite: deletion, finalizers and ownership."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from isthmus.errors import Conflict, Invalid, NotFound
from isthmus.resources.kinds import JOB, SITE
from isthmus.store.base import FOREGROUND_FINALIZER, Key, Part, Propagation, Query, Store

from .stores import changed, exists, job, job_key, names, owned_by


async def expect_gone(store: Store, keys: Mapping[str, Key]) -> None:
    """None of them is there."""
    assert [name for name, key in keys.items() if await exists(store, key)] == []


@pytest.mark.anyio
class DeletingContract:
    """Deletion, finalizers and ownership."""

    async def test_delete(self, store: Store) -> None:
        """It goes with a version of its own; its name is free, its uid is never used again."""
        record = await store.create(JOB, job("a"))
        gone = await store.delete(record.key)
        assert gone.uid == record.uid
        assert gone.version == await store.version() > record.version
        assert gone.obj["metadata"]["resourceVersion"] == str(gone.version)
        with pytest.raises(NotFound):
            await store.get(record.key)
        assert (await store.create(JOB, job("a"))).uid != record.uid

    async def test_only_the_object_meant(self, store: Store) -> None:
        """By uid and version."""
        record = await store.create(JOB, job("a"))
        with pytest.raises(Conflict):
            await store.delete(record.key, uid="another")
        with pytest.raises(Conflict):
            await store.delete(record.key, version=record.version + 1)
        await store.delete(record.key, uid=record.uid, version=record.version)

    async def test_finalizers_hold_it(self, store: Store) -> None:
        """Deletion only marks it; it goes when an update takes the last finalizer away."""
        record = await store.create(JOB, job("a", finalizers=["x/one", "x/two"]))
        marked = await store.delete(record.key)
        assert marked.obj["metadata"]["deletionTimestamp"]
        assert (await store.delete(record.key)).version == marked.version, "once is enough"
        with pytest.raises(Invalid):
            await store.update(JOB, changed(marked, finalizers=["x/one", "x/two", "x/three"]))
        one = await store.update(JOB, changed(marked, finalizers=["x/one"]))
        assert one.obj["metadata"]["deletionTimestamp"] == marked.obj["metadata"]["deletionTimestamp"]
        gone = await store.update(JOB, changed(one, finalizers=[], status={"phase": "Failed"}), Part.WHOLE)
        assert gone.obj["status"] == {"phase": "Failed"}
        assert not await exists(store, record.key)

    async def test_background_takes_what_is_owned(self, store: Store) -> None:
        """All levels of it. An object with another living owner stays and loses the reference."""
        a, b = await store.create(JOB, job("a")), await store.create(JOB, job("b"))
        child = await store.create(JOB, job("child", **owned_by(a)))
        grandchild = await store.create(JOB, job("grandchild", **owned_by(child)))
        shared = await store.create(JOB, job("shared", **owned_by(a, b)))
        held = await store.create(JOB, job("held", finalizers=["x/y"], **owned_by(a)))
        await store.delete(a.key)
        await expect_gone(store, {"a": a.key, "child": child.key, "grandchild": grandchild.key})
        left = (await store.get(shared.key)).obj["metadata"]
        assert [reference["uid"] for reference in left["ownerReferences"]] == [b.uid]
        assert "deletionTimestamp" in (await store.get(held.key)).obj["metadata"]
        await store.delete(b.key)
        assert not await exists(store, shared.key)

    async def test_owned_objects_go_when_the_last_finalizer_goes(self, store: Store) -> None:
        """Not when the owner is only marked."""
        owner = await store.create(JOB, job("owner", finalizers=["x/y"]))
        child = await store.create(JOB, job("child", **owned_by(owner)))
        marked = await store.delete(owner.key)
        assert await exists(store, child.key)
        await store.update(JOB, changed(marked, finalizers=[]))
        await expect_gone(store, {"owner": owner.key, "child": child.key})

    async def test_foreground_lets_the_owned_go_first(self, store: Store) -> None:
        """While a finalizer holds one of them, the owner waits; then it goes too."""
        owner = await store.create(JOB, job("owner"))
        free = await store.create(JOB, job("free", **owned_by(owner)))
        middle = await store.create(JOB, job("middle", **owned_by(owner)))
        held = await store.create(JOB, job("held", finalizers=["x/y"], **owned_by(middle)))
        marked = await store.delete(owner.key, propagation=Propagation.FOREGROUND)
        assert marked.obj["metadata"]["finalizers"] == [FOREGROUND_FINALIZER]
        assert not await exists(store, free.key)
        assert (await store.get(middle.key)).obj["metadata"]["finalizers"] == [FOREGROUND_FINALIZER]
        with pytest.raises(Invalid):
            await store.create(JOB, job("late", **owned_by(owner)))
        await store.update(JOB, changed(await store.get(held.key), finalizers=[]))
        await expect_gone(store, {"held": held.key, "middle": middle.key, "owner": owner.key})

    async def test_foreground_keeps_other_finalizers(self, store: Store) -> None:
        """With nothing owned it is like any deletion; other finalizers hold it still."""
        owner = await store.create(JOB, job("owner", finalizers=["x/y"]))
        child = await store.create(JOB, job("child", finalizers=["x/z"], **owned_by(owner)))
        await store.delete(owner.key, propagation=Propagation.FOREGROUND)
        await store.update(JOB, changed(await store.get(child.key), finalizers=[]))
        left = await store.get(owner.key)
        assert left.obj["metadata"]["finalizers"] == ["x/y"]
        await store.update(JOB, changed(left, finalizers=[]))
        lonely = await store.create(JOB, job("lonely"))
        await store.delete(lonely.key, propagation=Propagation.FOREGROUND)
        await expect_gone(store, {"owner": owner.key, "lonely": lonely.key})

    async def test_orphan_leaves_what_is_owned(self, store: Store) -> None:
        """Without its reference."""
        owner = await store.create(JOB, job("owner"))
        child = await store.create(JOB, job("child", **owned_by(owner)))
        await store.delete(owner.key, propagation=Propagation.ORPHAN)
        assert not await exists(store, owner.key)
        assert "ownerReferences" not in (await store.get(child.key)).obj["metadata"]

    @pytest.mark.parametrize("propagation", list(Propagation))
    async def test_a_circle_can_be_deleted(self, store: Store, propagation: Propagation) -> None:
        """Two objects that own each other do not wait for each other for ever."""
        a = await store.create(JOB, job("a"))
        b = await store.create(JOB, job("b", **owned_by(a)))
        await store.update(JOB, changed(a, **owned_by(b)))
        await store.delete(a.key, propagation=propagation)
        assert not await exists(store, a.key)
        assert await exists(store, b.key) == (propagation is Propagation.ORPHAN)

    @pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND])
    async def test_long_chains_and_large_families(self, store: Store, propagation: Propagation) -> None:
        """Deeper than Python's stack, more than what is done at once."""
        root = above = await store.create(JOB, job("root"))
        for n in range(1100 if propagation is Propagation.FOREGROUND else 300):
            above = await store.create(JOB, job(f"below-{n}", **owned_by(above)))
        await asyncio.gather(*(store.create(JOB, job(f"child-{n}", **owned_by(root))) for n in range(700)))
        await store.delete(root.key, propagation=propagation)
        assert await names(store, Query(JOB)) == []

    async def test_an_owner_must_live(self, store: Store) -> None:
        """In the same namespace or in none: otherwise nothing would ever collect the object."""
        owner = await store.create(JOB, job("owner"))
        site = await store.create(SITE, {"metadata": {"name": "here"}})
        await store.create(JOB, job("of-site", **owned_by(site)))
        with pytest.raises(Invalid):
            await store.create(JOB, job("elsewhere", "bob", **owned_by(owner)))
        await store.delete(owner.key)
        with pytest.raises(Invalid):
            await store.create(JOB, job("late", **owned_by(owner)))
        await store.delete(site.key)
        assert not await exists(store, job_key("of-site"))
