"""Placing: the one loop that gives waiting jobs a site, in order, as room appears.

It wakes when a job becomes ready or room becomes free, plans over the whole ledger (pure, in `scheduling`), and
writes each assignment with the version that was read. Why the others wait is written too, but calmly: only when
nothing was placed for a moment, only where it changed, and a limited number at a time, so that ten thousand
waiting jobs do not cost ten thousand writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import reach
from isthmus.errors import Conflict, Invalid, IsthmusError, NotFound
from isthmus.metrics import JOBS_WAITING, PLACEMENT_SECONDS
from isthmus.reconcilers.jobs import lifecycle
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.reconcilers.typed import Typed
from isthmus.reconcilers.writing import Writer
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import RUN_FINALIZER, Job, JobStatus
from isthmus.resources.kinds import DEVICE_CLASS, JOB, SITE, TENANT
from isthmus.resources.sites import Site
from isthmus.resources.tenants import Tenant, full_storage
from isthmus.resources.work.plans import PlanStatus
from isthmus.runtime.declaring import Background, Observes
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.scheduling.demands import Tariff, demand_of
from isthmus.scheduling.placement import Assignment, Plan, SiteView, Verdict
from isthmus.scheduling.planning.planning import Outlook
from isthmus.store.base import Record, Store

from .planning import MADE_ROOM, NOTHING, DeadlinePlanner, Decision, is_news, place, planned
from .surveying import Ground, Surveyor, site_view

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

log = logging.getLogger(__name__)

QUIET_PERIOD = 0.3
"""Seconds without a placement before it is reported why jobs wait."""
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
        classes: Informer,
        tenants: Informer,
        index: JobIndex,
        planner: DeadlinePlanner,
        engines: EngineRegistry,
        leadership: Leadership,
        recorder: Recorder,
        wake: asyncio.Event,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._jobs, self._sites, self._classes, self._tenants = jobs, sites, classes, tenants
        self._planner, self._decided = planner, NOTHING
        self._index, self._engines, self._recorder = index, engines, recorder
        self._writer = Writer(store, leadership, jobs)
        self._wake, self._now = wake, now
        self._pause = 0.0
        self._typed = Typed()
        self._tariffs: dict[str, Tariff] = {}

    async def run(self) -> None:
        """Place until cancelled."""
        while True:
            await self._woken()
            if self._pause:
                await asyncio.sleep(self._pause)
                self._pause = 0.0
            self._wake.clear()
            try:
                made = await self._pass()
                if made.assignments:
                    self._wake.set()  # look again at once: a pass is limited, and writes may have been refused
                    await asyncio.sleep(0)
                elif made.verdicts or self._decided.waits:
                    await self._notify(made)
            except IsthmusError as error:
                log.warning("placement failed", extra={"error": str(error)})
                await asyncio.sleep(1)
                self._wake.set()

    async def _woken(self) -> None:
        """Wait until something happened; with jobs that have deadlines, not for ever."""
        try:
            async with asyncio.timeout(self._decided.again_in if self._planner.is_needed else None):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _pass(self) -> Plan:
        if self._decided is NOTHING and not self._planner.is_needed and not self._index.ledger.waiting:
            JOBS_WAITING.set(0)
            return Plan()
        tenants = [self._typed.of(Tenant, record) for record in self._tenants.all()]
        views = self._site_views()
        self._tariffs = {view.name: view.tariff for view in views}
        ground = Ground(views, {tenant.name: tenant.spec for tenant in tenants}, full_storage(tenants))
        outlook = await self._outlook(ground)
        made, self._decided, spent = place(self._index, self._planner, ground, outlook)
        for uid in self._decided.stops:
            await self._stop(uid)
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

    async def _outlook(self, ground: Ground) -> Outlook | None:
        """The plan for jobs with deadlines, if one is due. One that cannot be made keeps no other jobs from running."""
        try:
            due = self._planner.due(ground)
            return await asyncio.to_thread(planned, due) if due else None
        except Exception:
            log.exception("planning for deadlines broke")
            return None

    async def _assign(self, assignment: Assignment) -> None:
        if (record := self._record(assignment.uid)) is None:
            return
        job = self._index.job(record)
        if job.status.phase is not JobPhase.PENDING:
            return
        finalizers = [*(f for f in job.metadata.finalizers or () if f != RUN_FINALIZER), RUN_FINALIZER]
        status = lifecycle.placed(job, assignment.site, self._now(), why=assignment.why)
        if start := self._decided.starts.get(assignment.uid):
            status.chosen, status.plan = start.chosen, start.plan
        status.price_per_hour = self._price(job, status)
        try:
            await self._writer.status(record, status, finalizers=finalizers)
        except (Conflict, NotFound, Invalid):  # changed, deleted or being deleted meanwhile: the watch will say
            self._wake.set()
            return
        reported = f": {assignment.why}" if assignment.why else ""
        self._recorder.say(job, "Placed", f"placed at {assignment.site}{reported}")

    def _price(self, job: Job, status: JobStatus) -> float | None:
        """What an hour of it costs as prices are now; later changes concern later placements."""
        tariff = self._tariffs.get(status.site or "")
        if tariff is None or not (tariff.cpu or tariff.devices):
            return None
        rate = tariff.rate(demand_of(job.namespace, job.spec, status.chosen).room)
        return round(rate * 3600, 9) or None

    async def _stop(self, uid: str) -> None:
        """Write down that a running job makes room; its reconciler does the rest, however often it is interrupted."""
        if uid not in self._index.stoppable or (record := self._record(uid)) is None:
            return
        job = self._index.job(record)
        reach("stop:before")
        try:
            await self._writer.status(record, lifecycle.stopping(job, MADE_ROOM, self._now()))
        except (Conflict, NotFound):
            return
        reach("stop:after")
        self._recorder.say(job, "Preempting", MADE_ROOM)

    async def _notify(self, made: Plan) -> None:
        """Say why jobs wait, unless something happens meanwhile."""
        try:
            async with asyncio.timeout(QUIET_PERIOD):
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
        if await self._report_plans(self._decided) or len(news) == TOLD_AT_ONCE:
            self._wake.set()

    async def _report_plans(self, decided: Decision) -> bool:
        """Say when and where jobs with deadlines are expected to start; whether there is more to say."""
        reported = 0
        for uid, (reason, new) in decided.waits.items():
            record = self._record(uid)
            if record is None or uid not in self._index.promised:
                continue
            job = self._index.job(record)
            if job.status.reason == reason and not is_news(job.status.plan, new):
                continue
            if reported == TOLD_AT_ONCE:
                return True
            reported += 1
            try:
                await self._writer.status(record, lifecycle.planned(job, reason, new))
            except (Conflict, NotFound):
                continue
            self._say_plan(job, reason, new)
        return False

    def _say_plan(self, job: Job, reason: str, new: PlanStatus) -> None:
        if job.status.reason != reason:
            self._recorder.say(job, reason, new.message, warning=reason == "NoSiteFits")

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
        sites = sorted((self._typed.of(Site, record) for record in self._sites.all()), key=lambda site: site.name)
        classes = {record.key.name: self._typed.of(DeviceClass, record) for record in self._classes.all()}
        return [self._view(site, classes) for site in sites]

    def _view(self, site: Site, classes: Mapping[str, DeviceClass]) -> SiteView:
        engine = self._engines.find(site.name)
        return site_view(site, engine.capabilities if engine else None, classes, connected=engine is not None)


def declare(shared: Shared) -> Background:
    """The part that gives waiting jobs a site. Jobs that become ready wake it through their index."""
    surveyor = Surveyor(shared.index, shared.job, shared.profiles.past)
    placer = Placer(
        store=shared.store,
        jobs=shared.informer(JOB),
        sites=shared.informer(SITE),
        classes=shared.informer(DEVICE_CLASS),
        tenants=shared.informer(TENANT),
        index=shared.index,
        planner=DeadlinePlanner(shared.index, surveyor, shared.now, clock=lambda: asyncio.get_running_loop().time()),
        engines=shared.engines,
        leadership=shared.leadership,
        recorder=shared.recorder,
        wake=shared.wake,
        now=shared.now,
    )

    async def go_on() -> None:
        shared.wake.set()  # what it was about to do when it failed is looked at again
        await placer.run()

    def look_again(_old: Record | None, _new: Record | None) -> None:
        shared.wake.set()

    return Background(name="placer", run=go_on, observes=(Observes(SITE, look_again), Observes(TENANT, look_again)))
