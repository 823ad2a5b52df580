"""Leader election: of several control planes on one store, one reconciles.

The lease is an object changed by compare-and-swap. Nobody trusts another machine's clock: a candidate takes over
only after it has itself seen the lease unchanged for its whole duration, on a clock that only grows; the holder
stops believing in itself earlier, when it could not renew for `renew_deadline` seconds, and at once when it finds the
lease in other hands. A leader that was paused (SIGSTOP, a machine that slept) finds that deadline passed when it
wakes, and `check` stops whatever it was about to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import AlreadyExists, Conflict, IsthmusError, NotFound, Unavailable
from isthmus.resources.kinds import LEASE
from isthmus.resources.leases import Lease, LeaseSpec
from isthmus.resources.meta import ObjectMeta
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.store.base import Key, Record, Store

log = logging.getLogger(__name__)


def now() -> float:
    """Seconds that only grow and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """How leaders are elected."""

    duration: float = 6.0
    """Seconds a lease lasts unrenewed before another may take it: the longest pause after a crash."""
    renew_deadline: float = 4.0
    """Seconds after which a leader that could not renew gives up. Less than `duration`, so that two never lead."""
    interval: float = 1.0
    """Seconds between renewals, and between a candidate's looks."""


class Leadership:
    """Whether we lead, now."""

    def __init__(self) -> None:
        self._until = 0.0

    def extend(self, until: float) -> None:
        """We lead until this time (see `now`), if nothing more is heard."""
        self._until = until

    def end(self) -> None:
        """We no longer lead."""
        self._until = 0.0

    @property
    def held(self) -> bool:
        """Whether we lead at this moment."""
        return now() < self._until

    def check(self) -> None:
        """Raise unless we lead: called right before every effect."""
        if not self.held:
            raise Unavailable("this control plane no longer leads; another one goes on with the work")


class Sole(Leadership):
    """The only control plane there can be (an embedded store is locked by its process): it always leads."""

    @property
    def held(self) -> bool:
        """Always."""
        return True


class LeaderElection:
    """Runs `lead` whenever, and only while, we hold the lease."""

    def __init__(self, store: Store, identity: str, settings: LeaderSettings, leadership: Leadership) -> None:
        self._store, self._identity, self._settings = store, identity, settings
        self.leadership = leadership
        self._key = Key(LEASE.name, SYSTEM_NAMESPACE, "leader")
        self._seen_version = -1
        self._seen_at = 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election for ever; lead while elected."""
        while True:
            started = now()
            if await self._try():
                self.leadership.extend(started + self._settings.renew_deadline)
                log.info("leading", extra={"identity": self._identity})
                await self._lead(lead)
                log.warning("no longer leading", extra={"identity": self._identity})
            await asyncio.sleep(self._settings.interval)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=self._settings.interval)
                started = now()
                if not self.leadership.held:
                    return
                if await self._try():
                    self.leadership.extend(started + self._settings.renew_deadline)
            work.result()
        finally:
            self.leadership.end()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def resign(self) -> None:
        """Let the next one take over at once (an orderly stop)."""
        try:
            record = await self._store.get(self._key)
            lease = Lease.model_validate(record.obj)
            if lease.spec.holder_identity == self._identity:
                await self._write(record, lease, holder="")
        except IsthmusError as error:
            log.info("lease not given back", extra={"error": str(error)})

    async def _try(self) -> bool:
        """Take or renew the lease; False when it is another's, or when we could not find out."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                return await self._acquire()
        except (Conflict, TimeoutError):
            return False
        except IsthmusError as error:
            log.warning("lease not reached", extra={"error": str(error)})
            return False

    async def _acquire(self) -> bool:
        try:
            record = await self._store.get(self._key)
        except NotFound:
            return await self._create()
        lease = Lease.model_validate(record.obj)
        if lease.spec.holder_identity == self._identity:
            await self._write(record, lease, holder=self._identity)
            return True
        self.leadership.end()  # whatever we believed: it is another's
        if record.version != self._seen_version:
            self._seen_version, self._seen_at = record.version, now()
        if lease.spec.holder_identity and now() - self._seen_at < self._settings.duration:
            return False
        lease.spec.lease_transitions += 1
        lease.spec.acquire_time = timestamp(utcnow())
        await self._write(record, lease, holder=self._identity)
        return True

    async def _create(self) -> bool:
        moment = timestamp(utcnow())
        lease = Lease(
            metadata=ObjectMeta(name=self._key.name, namespace=self._key.namespace),
            spec=LeaseSpec(holder_identity=self._identity, acquire_time=moment, renew_time=moment),
        )
        try:
            await self._store.create(LEASE, lease.to_json())
        except AlreadyExists:
            return False
        return True

    async def _write(self, record: Record, lease: Lease, *, holder: str) -> None:
        lease.spec.holder_identity = holder
        lease.spec.renew_time = timestamp(utcnow())
        lease.metadata.resource_version = str(record.version)
        await self._store.update(LEASE, lease.to_json())
