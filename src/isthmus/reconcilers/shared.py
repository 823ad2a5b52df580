"""What the parts of the control plane share: store, informers, the index of jobs, engines, events, the clock.

Made anew each time we begin to lead. A part takes from it what it needs in its `declare` function; none is given more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from isthmus._kit.clock import utcnow
from isthmus._kit.sealing import Sealer
from isthmus.resources.kinds import EXPERIMENT, JOB, PROFILE, SECRET, SITE, TENANT, USAGE_RECORD, Kind
from isthmus.runtime.informers import Accept, Informer
from isthmus.runtime.leading import Leadership
from isthmus.runtime.managing import Informers, Queues
from isthmus.storage.base import Blobs
from isthmus.store.base import Key, Record, Spaces, Store

from .hosts.reconciler import MakeHostDriver, no_hosts
from .jobs.image_resolving import ImageResolver, MakeClient
from .jobs.job_index import JobIndex
from .jobs.registry_logins import RegistryLogins
from .placement.profiling import ProfileKeeper
from .recording import Recorder
from .refusing import Refuser
from .sites.registry import EngineRegistry
from .storage_measuring import meter_of
from .usage_keeping import UsageKeeper

if TYPE_CHECKING:
    from .sites.exposing import MakeExposure
    from .sites.reconciler import MakeEngine


class Shared:
    """What parts are made of."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: Blobs,
        engines: EngineRegistry,
        make_engine: MakeEngine,
        make_exposure: MakeExposure,
        leadership: Leadership,
        workers: int,
        spaces: Spaces | None = None,
        others_write: bool = False,
        sealer: Sealer | None = None,
        make_registries: MakeClient | None = None,
        make_host: MakeHostDriver = no_hosts,
        address: Callable[[str, str], str | None] = lambda namespace, name: None,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self.store, self.blobs, self.engines, self.leadership = store, blobs, engines, leadership
        self.make_engine, self.make_exposure, self.spaces = make_engine, make_exposure, spaces
        self.workers, self.now, self.make_host, self.address = workers, now, make_host, address
        self.refuser = Refuser(store, leadership)
        self._others_write = others_write
        self.informers, self.queues = Informers(store, self._check), Queues()
        self.wake = asyncio.Event()
        """Set when there may be something to place."""
        self.index = JobIndex(self.look("jobs"), self.wake.set)
        self.logins = RegistryLogins(self.informer(SECRET), sealer)
        self.images = ImageResolver(self.informer(SITE), self.logins, self.look("jobs"), make_registries)
        self.recorder = Recorder(store, self.informer(TENANT))
        self.storage = meter_of(self)
        self.profiles = ProfileKeeper(store, self.informer(PROFILE), self.informer(TENANT), leadership)
        self.usage = UsageKeeper(
            store,
            self.informer(USAGE_RECORD),
            self.informer(TENANT),
            self.informer(JOB),
            leadership,
            self.look_first("jobs"),
            now,
        )

    def informer(self, kind: Kind) -> Informer:
        """The objects of a kind, as they are now."""
        return self.informers.of(kind)

    def look(self, name: str) -> Callable[[Key], None]:
        """Gives keys to the reconciler of this name."""
        return self.queues.of(name).add

    def look_first(self, name: str) -> Callable[[Key], None]:
        """The same for what has happened: it is reported before something new is begun."""
        return self.queues.of(name).add_first

    def job(self, uid: str) -> Record | None:
        """A job by its uid."""
        key = self.index.keys.get(uid)
        return self.informer(JOB).get(key) if key else None

    def _check(self, kind: Kind) -> Accept | None:
        """An earlier version may have let pass what this one refuses. Work comes by the thousand and was checked by our
        API: it is checked again only where others write to the store too. Profiles and records of usage are our own."""
        if kind in (PROFILE, USAGE_RECORD) or (kind in (JOB, EXPERIMENT) and not self._others_write):
            return None
        return self.refuser.accept
