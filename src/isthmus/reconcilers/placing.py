"""Placing: the one loop that gives waiting jobs a site, in order, as room appears.

It wakes when a job becomes ready or room becomes free, plans over the whole ledger (pure, in `scheduling`), and
writes each assignment with the version that was read. Why the others wait is written too, but calmly: only when
nothing was placed for a moment, only where it changed, and a limited number at a time, so that ten thousand
waiting jobs do not cost ten thousand writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import reach
from isthmus.errors import Conflict, Invalid, IsthmusError, NotFound
from isthmus.metrics import JOBS_WAITING, PLACEMENT_SECONDS
from isthmus.resources.jobs import RUN_FINALIZER
from isthmus.resources.sites import Site
from isthmus.resources.states import JobPhase, SitePhase
from isthmus.resources.tenants import Tenant, TenantSpec
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.scheduling.demands import Room
from isthmus.scheduling.placement import Assignment, Plan, SiteView, Verdict, plan
from isthmus.store.base import Record, Store

from . import lifecycle
from .engine_room import EngineRoom
from .job_index import JobIndex
from .recording import Recorder
from .writing import Writer

log = logging.getLogger(__name__)

CALM = 0.3
"""Seconds without a placement before it is told why jobs wait."""
TOLD_AT_ONCE = 100
CHEAP = 0.02
"""Seconds that a pass may take before a pause follows it."""


class Placer:
    """Gives waiting jobs a site."""

    def __init__(
        self,
        *,
        store: Store,
        jobs: Informer,
        sites: Informer,
        tenants: Informer,
        index: JobIndex,
        engines: EngineRoom,
        leadership: Leadership,
        recorder: Recorder,
        wake: asyncio.Event,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._jobs, self._sites, self._tenants = jobs, sites, tenants
        self._index, self._engines, self._recorder = index, engines, recorder
        self._writer = Writer(store, leadership, jobs)
        self._wake, self._now = wake, now
        self._pause = 0.0

    async def run(self) -> None:
        """Place until cancelled."""
        while True:
            await self._wake.wait()
            if self._pause:
                await asyncio.sleep(self._pause)
                self._pause = 0.0
            self._wake.clear()
            try:
                made = await self._pass()
                if made.assignments:
                    self._wake.set()  # look again at once: a pass is limited, and writes may have been refused
                    await asyncio.sleep(0)
                elif made.verdicts:
                    await self._tell(made)
            except IsthmusError as error:
                log.warning("placement failed", extra={"error": str(error)})
                await asyncio.sleep(1)
                self._wake.set()

    async def _pass(self) -> Plan:
        began = time.monotonic()
        made = plan(self._index.ledger, self._site_views(), self._tenant_specs())
        spent = time.monotonic() - began
        PLACEMENT_SECONDS.observe(spent)
        if spent > CHEAP:  # thousands of jobs that all differ: leave the others as much time as was taken from them
            self._pause = min(spent, 1.0)
        JOBS_WAITING.set(self._index.ledger.waiting)
        if made.assignments:
            # All are waited for, also when one fails: a later pass must not plan around writes that are on their way.
            done = await asyncio.gather(*map(self._assign, made.assignments), return_exceptions=True)
            if failed := next((outcome for outcome in done if outcome is not None), None):
                raise failed
        return made

    async def _assign(self, assignment: Assignment) -> None:
        if (record := self._record(assignment.uid)) is None:
            return
        job = self._index.job(record)
        if job.status.phase is not JobPhase.PENDING:
            return
        finalizers = [*(f for f in job.metadata.finalizers or () if f != RUN_FINALIZER), RUN_FINALIZER]
        reach("place:before")
        try:
            await self._writer.status(
                record, lifecycle.placed(job, assignment.site, self._now()), finalizers=finalizers
            )
        except (Conflict, NotFound, Invalid):  # changed, deleted or being deleted meanwhile: the watch will tell
            self._wake.set()
            return
        reach("place:after")
        self._recorder.say(job, "Placed", f"placed at {assignment.site}")

    async def _tell(self, made: Plan) -> None:
        """Say why jobs wait, unless something happens meanwhile."""
        try:
            async with asyncio.timeout(CALM):
                await self._wake.wait()
            return
        except TimeoutError:
            pass
        news = list(islice(self._untold(made), TOLD_AT_ONCE))
        for record, verdict in news:
            job = self._index.job(record)
            try:
                await self._writer.status(record, lifecycle.waiting(job, verdict.reason, verdict.message))
            except (Conflict, NotFound):
                continue
            self._recorder.say(job, verdict.reason, verdict.message, warning=verdict.reason == "NoSiteFits")
        if len(news) == TOLD_AT_ONCE:
            self._wake.set()

    def _untold(self, made: Plan) -> Iterator[tuple[Record, Verdict]]:
        for demand, verdict in made.verdicts.items():
            for _, uid in list(self._index.ledger.queues.get(demand, ())):
                record = self._record(uid)
                if record and record.obj["status"].get("message") != verdict.message:
                    yield record, verdict

    def _record(self, uid: str) -> Record | None:
        key = self._index.keys.get(uid)
        return self._jobs.get(key) if key else None

    def _site_views(self) -> list[SiteView]:
        sites = sorted((Site.model_validate(record.obj) for record in self._sites.all()), key=lambda site: site.name)
        return [self._view(site) for site in sites]

    def _view(self, site: Site) -> SiteView:
        engine = self._engines.find(site.name)
        closed = None
        if site.metadata.deletion_timestamp:
            closed = "it is being removed"
        elif not site.spec.enabled:
            closed = "it is disabled"
        elif engine is None or site.status.phase is not SitePhase.READY:
            closed = f"it is not ready ({site.status.message or 'not connected yet'})"
        capacity = site.status.capacity
        room = Room()
        if capacity is not None:
            room = Room(int(capacity.cpus * 1000), capacity.memory_bytes, tuple(sorted(capacity.devices.items())))
        able = engine.capabilities if engine else None
        return SiteView(
            name=site.name,
            attributes=site.attributes,
            capacity=room,
            closed=closed,
            queues=bool(able and able.queues),
            multi_node=bool(able and able.multi_node),
            images=bool(able and able.images),
        )

    def _tenant_specs(self) -> dict[str, TenantSpec]:
        return {record.key.name: Tenant.model_validate(record.obj).spec for record in self._tenants.all()}
