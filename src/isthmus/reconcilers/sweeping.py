"""Sweeping: contents that no object names any more are removed after a day.

What is kept: the trees and files that the kinds declare to hold (a job's folder, what it took of others, what it left),
and the files in those trees. The day covers uploads whose job is still on its way. A tenant whose trees cannot all be
read is left alone, and everything is when the store cannot be read: unknown is not unused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.errors import IsthmusError, NotFound
from isthmus.resources.kinds import KINDS, TENANT, Kind
from isthmus.resources.tenants import Tenant, full_storage
from isthmus.resources.work.paths import values_at
from isthmus.runtime.declaring import Background
from isthmus.runtime.leading import Leadership
from isthmus.storage.base import Blobs
from isthmus.store.base import Query, Store

if TYPE_CHECKING:
    from .shared import Shared

log = logging.getLogger(__name__)

EVERY = 3600.0
UNUSED_FOR = 86_400.0
FULL_EVERY, FULL_UNUSED_FOR = 60.0, 900.0
"""The same for tenants whose storage quota is used: what they delete must make room soon, and what they send is
refused anyway."""
_PAGE = 500

Digests = dict[str, set[str]]
"""Digests by tenant."""


class Sweeper:
    """Removes what nobody needs."""

    def __init__(self, store: Store, blobs: Blobs, leadership: Leadership) -> None:
        self._store, self._blobs, self._leadership = store, blobs, leadership

    async def run(self) -> None:
        """Sweep every hour until cancelled, and those without room in between."""
        while True:
            for _ in range(round(EVERY / FULL_EVERY)):
                await asyncio.sleep(FULL_EVERY)
                if full := await self._without_room():
                    await self.sweep(FULL_UNUSED_FOR, full)
            await self.sweep()

    async def _without_room(self) -> list[str]:
        try:
            records = (await self._store.list(Query(TENANT))).records
        except IsthmusError as error:
            log.warning("tenants not read", extra={"error": str(error)})
            return []
        return list(full_storage(Tenant.model_validate(record.obj) for record in records))

    async def sweep(self, unused_for: float = UNUSED_FOR, only: Sequence[str] | None = None) -> int:
        """Go through all tenants once, or through some; how many contents were removed."""
        trees: Digests = defaultdict(set)
        blobs: Digests = defaultdict(set)
        try:
            for kind in KINDS.values():
                if kind.trees or kind.blobs:
                    for namespace in [None] if only is None else only:
                        await self._note(kind, namespace, trees, blobs)
            tenants = [record.key.name for record in (await self._store.list(Query(TENANT))).records]
        except IsthmusError as error:
            log.warning("files not swept", extra={"error": str(error)})
            return 0
        removed = 0
        for tenant in tenants if only is None else [name for name in tenants if name in only]:
            try:
                self._leadership.check()
                kept = blobs[tenant] | await self._kept(tenant, trees[tenant])
                removed += await self._blobs.sweep(tenant, kept, unused_for)
            except IsthmusError as error:
                log.warning("files not swept", extra={"tenant": tenant, "error": str(error)})
        return removed

    async def _note(self, kind: Kind, namespace: str | None, trees: Digests, blobs: Digests) -> None:
        """Note what the objects of a kind hold, a page at a time."""
        cursor: str | None = None
        while True:
            page = await self._store.list(Query(kind, namespace), limit=_PAGE, continue_=cursor)
            for record in page.records:
                for found, paths in ((trees, kind.trees), (blobs, kind.blobs)):
                    found[record.key.namespace].update(d for path in paths for d in values_at(record.obj, path))
                record.shrink()
            if (cursor := page.continue_) is None:
                return

    async def _kept(self, tenant: str, trees: set[str]) -> set[str]:
        kept = set(trees)
        for digest in trees:
            try:
                kept |= (await self._blobs.get_tree(tenant, digest)).digests
            except NotFound:
                continue  # named by an object, but never uploaded
        return kept


def declare(shared: Shared) -> Background:
    """The part that removes contents that nobody needs."""
    return Background(name="sweeper", run=Sweeper(shared.store, shared.blobs, shared.leadership).run)
