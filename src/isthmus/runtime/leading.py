"""Leader election: of several control planes on one store, one reconciles.

The lease is an object changed by compare-and-swap. Nobody trusts another machine's clock: a candidate takes over
only after it has itself seen the lease unchanged for its whole duration, on a clock that only grows, while the store
answered; or at once when the holder ran on the candidate's own machine and its process is gone. The holder stops
acting earlier, when it could not renew for `renew_deadline` seconds, and at once when it finds the lease in other
hands. A leader that was paused (SIGSTOP, a machine that slept) finds that deadline passed when it wakes, and `check`
stops whatever it was about to do until the lease is renewed; if nobody took it meanwhile, it goes on where it was.

The lease is kept on a thread with an event loop and connections of its own, so that work that blocks the main event
loop for seconds does not cost the lead. A main loop that answers nothing for `stuck` seconds counts as dead: then
the lease is no longer renewed, and another control plane goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import AlreadyExists, Conflict, IsthmusError, NotFound, Unavailable
from isthmus.metrics import count_task_failure
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.kinds import LEASE
from isthmus.resources.leases import Lease, LeaseSpec
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.store.base import Key, Record, Store

from .processes import has_died, mark_of

log = logging.getLogger(__name__)

PROCESS = "isthmus.dev/process"
"""Annotation of the lease: which process holds it."""


def now() -> float:
    """Seconds that only grow and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """How leaders are elected."""

    duration: float = 3.0
    """Seconds a lease lasts unrenewed before another may take it: the longest wait after a crash of another machine. A
    process that died on the same machine is noticed at once."""
    renew_deadline: float = 2.0
    """Seconds after which a leader that could not renew stops acting. Less than `duration`, so that two never lead."""
    interval: float = 0.75
    """Seconds between renewals: two may fail before the deadline."""
    look: float = 0.25
    """Seconds between a candidate's looks. A look is one read, and adds to the wait after a crash."""
    stuck: float = 30.0
    """Seconds that the main event loop may be blocked before the leader gives the lead up. Longer than any work that
    was ever seen to block it; a loop that never comes back must not keep the lead."""


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


class Standing(Enum):
    """What an attempt to take or renew the lease came to."""

    OURS = auto()
    ANOTHERS = auto()
    UNKNOWN = auto()
    """The store did not answer, or somebody was faster: nothing is known, nothing is concluded."""


class Candidate:
    """Takes the lease when it may, and renews it."""

    def __init__(self, store: Store, identity: str, settings: LeaderSettings) -> None:
        self._store, self._identity, self._settings = store, identity, settings
        self._key = Key(LEASE.name, SYSTEM_NAMESPACE, "leader")
        self._mark = mark_of(os.getpid())
        self._seen_version = -1
        self._seen_at = 0.0

    async def attempt(self) -> Standing:
        """Take or renew the lease."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                return Standing.OURS if await self._acquire() else Standing.ANOTHERS
        except Conflict:
            return Standing.UNKNOWN
        except (TimeoutError, IsthmusError) as error:
            self._seen_version = -1  # the holder could not reach it either: its time is counted from when it can
            log.warning("the lease was not reached", extra={"error": str(error) or "no answer in time"})
            return Standing.UNKNOWN

    async def resign(self) -> None:
        """Let the next one take over at once (an orderly stop)."""
        try:
            record = await self._store.get(self._key)
            lease = Lease.model_validate(record.obj)
            if lease.spec.holder_identity == self._identity:
                await self._write(record, lease, holder="")
        except IsthmusError as error:
            log.info("the lease was not given back", extra={"error": str(error)})

    async def _acquire(self) -> bool:
        try:
            record = await self._store.get(self._key)
        except NotFound:
            return await self._create()
        lease = Lease.model_validate(record.obj)
        if lease.spec.holder_identity == self._identity:
            await self._write(record, lease, holder=self._identity)
            return True
        if record.version != self._seen_version:
            self._seen_version, self._seen_at = record.version, now()
        if not self._is_free(lease):
            return False
        lease.spec.lease_transitions += 1
        lease.spec.acquire_time = timestamp(utcnow())
        await self._write(record, lease, holder=self._identity)
        return True

    def _is_free(self, lease: Lease) -> bool:
        if not lease.spec.holder_identity or now() - self._seen_at >= self._settings.duration:
            return True
        return has_died((lease.metadata.annotations or {}).get(PROCESS, ""))

    async def _create(self) -> bool:
        moment = timestamp(utcnow())
        lease = Lease(
            metadata=ObjectMeta(name=self._key.name, namespace=self._key.namespace, annotations={PROCESS: self._mark}),
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
        lease.spec.lease_duration_seconds = max(1, round(self._settings.duration))
        lease.metadata.annotations = {**(lease.metadata.annotations or {}), PROCESS: self._mark}
        lease.metadata.resource_version = str(record.version)
        await self._store.update(LEASE, lease.to_json())


OpenStore = Callable[[], Awaitable[Store]]
"""Opens a store for the lease alone, on the event loop that calls it."""


class LeaderElection:
    """Runs `lead` whenever, and only while, we hold the lease."""

    def __init__(
        self,
        store: Store,
        identity: str,
        settings: LeaderSettings,
        leadership: Leadership,
        *,
        open_lease_store: OpenStore | None = None,
    ) -> None:
        """Without `open_lease_store` the lease is kept on the caller's event loop, through `store`."""
        self._store, self._identity, self._settings = store, identity, settings
        self.leadership = leadership
        self._open = open_lease_store
        self._term = 0
        """Counts the times that we were elected; negative while we are not."""
        self._changed = asyncio.Event()
        self._answered = now()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election for ever; lead while elected. Raises what `lead` raises."""
        async with self._keeping():
            while True:
                await self._until(lambda: self._term > 0)
                log.info("leading", extra={"identity": self._identity})
                await self._lead(self._term, lead)
                log.warning("no longer leading", extra={"identity": self._identity})

    async def resign(self) -> None:
        """Let the next one take over at once (an orderly stop); called when `run` has ended."""
        await Candidate(self._store, self._identity, self._settings).resign()

    async def _lead(self, term: int, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        over = asyncio.ensure_future(self._until(lambda: self._term != term))
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            over.cancel()
            work.cancel()
            await asyncio.gather(work, over, return_exceptions=True)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @asynccontextmanager
    async def _keeping(self) -> AsyncIterator[None]:
        """Keep the lease: on this event loop, or on a thread that does not wait for it."""
        self._answered = now()
        answering = asyncio.create_task(self._answer(), name="lease-answering")
        loop = asyncio.get_running_loop()

        def notify(term: int) -> None:
            loop.call_soon_threadsafe(self._elected, term)

        keeper = _Keeper(self, self._settings, notify)
        thread = _LeaseThread(keeper, self._open) if self._open is not None else None
        task = asyncio.create_task(keeper.run(self._store), name="lease") if thread is None else None
        try:
            if thread is not None:
                thread.start()
            yield
        finally:
            answering.cancel()
            if thread is not None:
                await asyncio.to_thread(thread.stop)
            if task is not None:
                task.cancel()
            await asyncio.gather(answering, *([task] if task else []), return_exceptions=True)
            self.leadership.end()
            self._term = min(self._term, -self._term)

    async def _answer(self) -> None:
        while True:
            self._answered = now()
            await asyncio.sleep(self._settings.interval)

    def _elected(self, term: int) -> None:
        self._term = term
        self._changed.set()

    @property
    def identity(self) -> str:
        """What we are called among several."""
        return self._identity

    @property
    def stuck(self) -> bool:
        """Whether the main event loop has answered nothing for too long."""
        return now() - self._answered > self._settings.stuck


class _Keeper:
    """Keeps the lease, and says when it was won or lost."""

    def __init__(self, election: LeaderElection, settings: LeaderSettings, notify: Callable[[int], None]) -> None:
        self._election, self._settings, self._notify = election, settings, notify
        self._leadership = election.leadership
        self._terms = 0
        self._leads = False
        self._renewed = 0.0

    async def run(self, store: Store) -> None:
        """Until cancelled."""
        candidate = Candidate(store, self._election.identity, self._settings)
        while True:
            if self._election.stuck:
                if self._leads:
                    log.error("the event loop is stuck: giving the lead up", extra={"seconds": self._settings.stuck})
                    self._lose()
            else:
                await self._step(candidate)
            await asyncio.sleep(self._settings.interval if self._leads else self._settings.look)

    async def _step(self, candidate: Candidate) -> None:
        started = now()
        standing = await candidate.attempt()
        if standing is Standing.OURS:
            self._renewed = started
            self._leadership.extend(started + self._settings.renew_deadline)
            if not self._leads:
                self._leads = True
                self._terms += 1
                self._notify(self._terms)
        elif self._leads and (standing is Standing.ANOTHERS or now() - self._renewed > self._settings.duration):
            self._lose()

    def _lose(self) -> None:
        self._leads = False
        self._leadership.end()
        self._notify(-self._terms)


class _LeaseThread:
    """Runs a keeper on an event loop of its own, whatever the main one does."""

    def __init__(self, keeper: _Keeper, open_store: OpenStore) -> None:
        self._keeper, self._open_store = keeper, open_store
        self._thread = threading.Thread(target=self._main, name="lease", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        if self._thread.ident is None:
            return  # it never began
        self._ready.wait()
        assert self._loop is not None
        assert self._task is not None
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _main(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._begin())

    async def _begin(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._ready.set()
        while True:
            try:
                store = await self._open_store()
                try:
                    await self._keeper.run(store)
                finally:
                    await store.close()
            except IsthmusError as error:
                log.warning("the lease cannot be reached", extra={"error": str(error)})
            except Exception:  # without it nobody would ever lead again
                log.exception("keeping the lease failed")
                count_task_failure("lease")
            await asyncio.sleep(1)
