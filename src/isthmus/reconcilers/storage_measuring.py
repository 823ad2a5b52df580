"""Measuring what each tenant takes of the server's disk: files and outputs, logs, working folders.

Engines say what their runs take, by run; whose run it is, the index of jobs says. What cannot be measured keeps its
last figure: unknown is not nothing. The figures are written into the status of tenants by their own reconciler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from isthmus.engines.base import MeasuringEngine, RunDisk
from isthmus.errors import IsthmusError
from isthmus.resources.kinds import TENANT
from isthmus.resources.tenants import StorageUse
from isthmus.runtime.declaring import Background
from isthmus.storage.base import Blobs
from isthmus.store.base import Key

from .sites.registry import EngineRegistry

if TYPE_CHECKING:
    from .shared import Shared

log = logging.getLogger(__name__)

EVERY = 10.0
SHARE = 50
"""Measuring takes at most one part in so many of the time."""


class StorageMeter:
    """What tenants take, as last measured."""

    def __init__(
        self, blobs: Blobs, engines: EngineRegistry, tenants: Callable[[], Iterable[str]], keys: Mapping[str, Key]
    ) -> None:
        """`keys` are those of jobs, by their uid."""
        self._blobs, self._engines, self._tenants, self._keys = blobs, engines, tenants, keys
        self._of_sites: dict[str, Mapping[str, RunDisk]] = {}
        self._used: dict[str, StorageUse] = {}

    def of(self, tenant: str) -> StorageUse | None:
        """What a tenant takes; None: not measured yet."""
        return self._used.get(tenant)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began = time.monotonic()
            await self.measure()
            await asyncio.sleep(max(EVERY, (time.monotonic() - began) * SHARE))

    async def measure(self) -> None:
        """Measure everything once."""
        await self._ask_sites()
        logs, folders = defaultdict[str, int](int), defaultdict[str, int](int)
        for runs in self._of_sites.values():
            for run_id, disk in runs.items():
                if key := self._keys.get(run_id.rpartition(".")[0]):
                    logs[key.namespace] += disk.logs
                    folders[key.namespace] += disk.folders
        for tenant in list(self._tenants()):
            try:
                files = await self._blobs.used(tenant)
            except (IsthmusError, OSError) as error:
                log.warning("files not measured", extra={"tenant": tenant, "error": str(error)})
                continue
            self._used[tenant] = StorageUse(files_bytes=files, logs_bytes=logs[tenant], folders_bytes=folders[tenant])

    async def _ask_sites(self) -> None:
        names = self._engines.names()
        for gone in self._of_sites.keys() - set(names):
            if not self._engines.expects(gone):
                del self._of_sites[gone]
        for name in names:
            engine: object = self._engines.find(name)
            if not isinstance(engine, MeasuringEngine):
                continue
            try:
                self._of_sites[name] = await engine.measure()
            except IsthmusError as error:
                log.warning("disk of a site not measured", extra={"site": name, "error": str(error)})


def declare(shared: Shared) -> Background:
    """The part that measures what tenants take."""
    return Background(name="storage", run=shared.storage.run)


def meter_of(shared: Shared) -> StorageMeter:
    """What measures, for everybody who shares these parts."""
    tenants = shared.informer(TENANT)
    return StorageMeter(
        shared.blobs, shared.engines, lambda: [record.key.name for record in tenants.all()], shared.index.keys
    )
