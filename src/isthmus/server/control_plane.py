"""The control plane: every part that the reconcilers declare, run for as long as we lead.

Made anew each time we begin to lead: whatever it holds in memory is made again from the store and the engines.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from isthmus._kit.clock import utcnow
from isthmus._kit.sealing import Sealer
from isthmus.metrics import LEADING
from isthmus.reconcilers.hosts.reconciler import MakeHostDriver, no_hosts
from isthmus.reconcilers.jobs.image_resolving import MakeClient
from isthmus.reconcilers.parts import PARTS
from isthmus.reconcilers.shared import Shared
from isthmus.reconcilers.sites.exposing import MakeExposure, no_exposure
from isthmus.reconcilers.sites.reconciler import MakeEngine
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.runtime.leading import Leadership
from isthmus.runtime.managing import Manager
from isthmus.storage.base import Blobs
from isthmus.store.base import Spaces, Store
from isthmus.store.points import with_points


class ControlPlane:
    """All parts, during one term of leading."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: Blobs,
        engines: EngineRegistry,
        make_engine: MakeEngine,
        leadership: Leadership,
        make_exposure: MakeExposure = no_exposure,
        workers: int = 16,
        spaces: Spaces | None = None,
        others_write: bool = False,
        sealer: Sealer | None = None,
        make_registries: MakeClient | None = None,
        make_host: MakeHostDriver = no_hosts,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        shared = Shared(
            store=with_points(store),
            blobs=blobs,
            engines=engines,
            make_engine=make_engine,
            make_exposure=make_exposure,
            leadership=leadership,
            workers=workers,
            spaces=spaces,
            others_write=others_write,
            sealer=sealer,
            make_registries=make_registries,
            make_host=make_host,
            now=now,
        )
        self._manager = Manager([declare(shared) for declare in PARTS], shared.informers, shared.queues)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            LEADING.set(1)
            await self._manager.run()
        finally:
            LEADING.set(0)
