"""The store contract as a suite: deletion, finalizers and ownership."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from isthmus.errors import Conflict, Invalid, NotFound
from isthmus.resources.kinds import JOB, SITE
from isthmus.store.base import FOREGROUND_FINALIZER, Part, Propagation, Query, Store

from .stores import Contract, changed, exists, job, job_key, names, owned_by, site, status


@pytest.mark.anyio
class DeletingContract(Contract):
    """Deletion, finalizers and ownership."""

    depth: ClassVar[tuple[int, int, int]] = (300, 1100, 700)
    """Length of a chain of owners deleted in the background and in the foreground, and children of one owner."""

    async def test_delete(self, store: Store) -> None:
        """It goes with a version of its own; its name is free, its uid is never used again."""
        record = await store.create(JOB, job("a"))
        gone = await store.delete(record.key)
        assert gone.uid == record.uid
        assert await store.version() >= gone.version > record.version
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
        gone = await store.update(JOB, changed(one, finalizers=[], status=status("Failed")), Part.WHOLE)
        assert gone.obj["status"] == status("Failed")
        assert not await exists(store, record.key)

    async def test_background_takes_what_is_owned(self, store: Store) -> None:
        """All levels of it. An object with another living owner stays and loses the reference."""
        a, b = await store.create(JOB, job("a")), await store.create(JOB, job("b"))
        child = await store.create(JOB, job("child", **owned_by(a)))
        grandchild = await store.create(JOB, job("grandchild", **owned_by(child)))
        shared = await store.create(JOB, job("shared", **owned_by(a, b)))
        held = await store.create(JOB, job("held", finalizers=["x/y"], **owned_by(a)))
        await store.delete(a.key)
        await self.gone(store, a.key, child.key, grandchild.key)

        async def only_b_owns() -> bool:
            left = (await store.get(shared.key)).obj["metadata"]
            return [reference["uid"] for reference in left["ownerReferences"]] == [b.uid]

        async def held_is_marked() -> bool:
            return "deletionTimestamp" in (await store.get(held.key)).obj["metadata"]

        await self.comes_true(only_b_owns, "the reference to what is gone is taken out")
        await self.comes_true(held_is_marked, "what finalizers hold is marked")
        await store.delete(b.key)
        await self.gone(store, shared.key)

    async def test_owned_objects_go_when_the_last_finalizer_goes(self, store: Store) -> None:
        """Not when the owner is only marked."""
        owner = await store.create(JOB, job("owner", finalizers=["x/y"]))
        child = await store.create(JOB, job("child", **owned_by(owner)))
        marked = await store.delete(owner.key)
        assert await exists(store, child.key)
        await store.update(JOB, changed(marked, finalizers=[]))
        await self.gone(store, owner.key, child.key)

    async def test_foreground_lets_the_owned_go_first(self, store: Store) -> None:
        """While a finalizer holds one of them, the owner waits; then it goes too."""
        owner = await store.create(JOB, job("owner"))
        free = await store.create(JOB, job("free", **owned_by(owner)))
        middle = await store.create(JOB, job("middle", **owned_by(owner)))
        held = await store.create(JOB, job("held", finalizers=["x/y"], **owned_by(middle)))
        marked = await store.delete(owner.key, propagation=Propagation.FOREGROUND)
        assert marked.obj["metadata"]["finalizers"] == [FOREGROUND_FINALIZER]
        await self.gone(store, free.key)

        async def middle_waits() -> bool:
            left = (await store.get(middle.key)).obj["metadata"].get("finalizers")
            return bool(left == [FOREGROUND_FINALIZER])

        async def held_is_marked() -> bool:
            return "deletionTimestamp" in (await store.get(held.key)).obj["metadata"]

        await self.comes_true(middle_waits, "what owns something that is held waits for it")
        await self.comes_true(held_is_marked, "what finalizers hold is marked")
        late = job("late", **owned_by(owner))
        if self.at_once:
            with pytest.raises(Invalid):
                await store.create(JOB, late)
        else:  # it is taken, and goes with the others
            await store.create(JOB, late)
        await store.update(JOB, changed(await store.get(held.key), finalizers=[]))
        await self.gone(store, held.key, middle.key, owner.key, job_key("late"))

    async def test_foreground_keeps_other_finalizers(self, store: Store) -> None:
        """With nothing owned it is like any deletion; other finalizers hold it still."""
        owner = await store.create(JOB, job("owner", finalizers=["x/y"]))
        child = await store.create(JOB, job("child", finalizers=["x/z"], **owned_by(owner)))
        await store.delete(owner.key, propagation=Propagation.FOREGROUND)

        async def child_is_marked() -> bool:
            return "deletionTimestamp" in (await store.get(child.key)).obj["metadata"]

        async def only_the_other_holds() -> bool:
            return bool((await store.get(owner.key)).obj["metadata"]["finalizers"] == ["x/y"])

        await self.comes_true(child_is_marked, "what is owned goes first")
        await store.update(JOB, changed(await store.get(child.key), finalizers=[]))
        await self.comes_true(only_the_other_holds, "the other finalizer holds it still")
        await store.update(JOB, changed(await store.get(owner.key), finalizers=[]))
        lonely = await store.create(JOB, job("lonely"))
        await store.delete(lonely.key, propagation=Propagation.FOREGROUND)
        await self.gone(store, owner.key, lonely.key)

    async def test_orphan_leaves_what_is_owned(self, store: Store) -> None:
        """Without its reference."""
        owner = await store.create(JOB, job("owner"))
        child = await store.create(JOB, job("child", **owned_by(owner)))
        await store.delete(owner.key, propagation=Propagation.ORPHAN)
        await self.gone(store, owner.key)
        assert "ownerReferences" not in (await store.get(child.key)).obj["metadata"]

    @pytest.mark.parametrize("propagation", list(Propagation))
    async def test_a_circle_can_be_deleted(self, store: Store, propagation: Propagation) -> None:
        """Two objects that own each other do not wait for each other for ever."""
        a = await store.create(JOB, job("a"))
        b = await store.create(JOB, job("b", **owned_by(a)))
        await store.update(JOB, changed(a, **owned_by(b)))
        await store.delete(a.key, propagation=propagation)
        await self.gone(store, a.key)
        if propagation is Propagation.ORPHAN:
            assert await exists(store, b.key)
        else:
            await self.gone(store, b.key)

    @pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.FOREGROUND])
    async def test_long_chains_and_large_families(self, store: Store, propagation: Propagation) -> None:
        """Deeper than Python's stack, more than what is done at once."""
        root = above = await store.create(JOB, job("root"))
        background, foreground, children = self.depth
        for n in range(foreground if propagation is Propagation.FOREGROUND else background):
            above = await store.create(JOB, job(f"below-{n}", **owned_by(above)))
        await asyncio.gather(*(store.create(JOB, job(f"child-{n}", **owned_by(root))) for n in range(children)))
        await store.delete(root.key, propagation=propagation)

        async def nothing_is_left() -> bool:
            return await names(store, Query(JOB)) == []

        await self.comes_true(nothing_is_left, "the whole family is gone")

    async def test_an_owner_must_live(self, store: Store) -> None:
        """In the same namespace or in none: otherwise nothing would ever collect the object."""
        owner = await store.create(JOB, job("owner"))
        here = await store.create(SITE, site("here"))
        await store.create(JOB, job("of-site", **owned_by(here)))
        await self.never_stays(store, job("elsewhere", "bob", **owned_by(owner)))
        await store.delete(owner.key)
        await self.never_stays(store, job("late", **owned_by(owner)))
        await store.delete(here.key)
        await self.gone(store, job_key("of-site"))
