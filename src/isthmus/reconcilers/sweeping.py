"""Sweeping: contents that no job names any more are removed after a day.

What is kept: the trees that jobs were sent with, took of others or left as outputs, and the files in them. The day
covers uploads whose job is still on its way. A tenant whose trees cannot all be read is left alone: unknown is not
unused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from isthmus.errors import IsthmusError, NotFound
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.storage.base import Blobs

log = logging.getLogger(__name__)

EVERY = 3600.0
UNUSED_FOR = 86_400.0


class Sweeper:
    """Removes what nobody needs."""

    def __init__(
        self, jobs: Informer, experiments: Informer, tenants: Informer, blobs: Blobs, leadership: Leadership
    ) -> None:
        self._jobs, self._experiments, self._tenants = jobs, experiments, tenants
        self._blobs, self._leadership = blobs, leadership

    async def run(self) -> None:
        """Sweep every hour until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.sweep()

    async def sweep(self, unused_for: float = UNUSED_FOR) -> int:
        """Go through all tenants once; how many contents were removed."""
        trees: dict[str, set[str]] = defaultdict(set)
        for record in self._jobs.all():
            for part, field in (("spec", "files"), ("status", "outputs"), ("status", "checkpoint")):
                if named := record.obj[part].get(field):
                    trees[record.key.namespace].add(named["tree"])
            taken = record.obj["status"].get("dependencies") or ()
            trees[record.key.namespace].update(other["tree"] for other in taken if other.get("tree"))
        for record in self._experiments.all():  # its runs may be made long after it was sent
            if named := record.obj["spec"]["template"].get("files"):
                trees[record.key.namespace].add(named["tree"])
        removed = 0
        for tenant in [record.key.name for record in self._tenants.all()]:
            try:
                self._leadership.check()
                removed += await self._blobs.sweep(tenant, await self._kept(tenant, trees[tenant]), unused_for)
            except IsthmusError as error:
                log.warning("files not swept", extra={"tenant": tenant, "error": str(error)})
        return removed

    async def _kept(self, tenant: str, trees: set[str]) -> set[str]:
        kept = set(trees)
        for digest in trees:
            try:
                kept |= (await self._blobs.get_tree(tenant, digest)).digests
            except NotFound:
                continue  # named by a job, but never uploaded
        return kept
