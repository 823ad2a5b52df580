"""What if: a plan for a job that is not there yet, or for another deadline, from the store alone.

Everything is read at the moment of the question, so every replica can answer, and nothing is changed. The answer names
sites, devices, times and costs; of other tenants' jobs it says no more than when room is expected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.durations import format_duration
from isthmus.errors import Conflict, NotFound
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.reconcilers.placement.planning import answer, planned
from isthmus.reconcilers.placement.profiling import points_of
from isthmus.reconcilers.placement.surveying import Ground, Surveyor, site_view, tariff_of
from isthmus.reconcilers.sites.reconciler import capabilities
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import DEVICE_CLASS, JOB, PROFILE, SITE, TENANT, Kind
from isthmus.resources.plans import PlanOption, PlanStatus
from isthmus.resources.selectors import Requirement, Selector
from isthmus.resources.sites import Site
from isthmus.resources.states import TERMINAL
from isthmus.resources.tenants import Tenant
from isthmus.scheduling.planning.workloads import Key as Devices
from isthmus.scheduling.planning.workloads import workload_of
from isthmus.store.base import Key, Query, Record, Store

_LIVE = Selector((Requirement("status.phase", "notin", frozenset(phase.value for phase in TERMINAL)),))


class StorePlans:
    """Answers what-if questions."""

    def __init__(self, store: Store, now: Callable[[], datetime] = utcnow) -> None:
        self._store, self._now = store, now
        self._one_at_a_time = asyncio.Lock()

    async def plan(self, job: Job) -> PlanStatus:
        """What would be planned for the job as it is given. Its uid says whether it is one that there is."""
        if job.status.phase.terminal:
            raise Conflict(f"job {job.name} has {job.status.phase.value.lower()}; there is nothing left to plan")
        async with self._one_at_a_time:  # a question is work for the processor; a crowd of them must not be
            return await self._answer(job)

    async def _answer(self, job: Job) -> PlanStatus:
        ground = await self._ground()
        records = {record.uid: record for record in await self._all(JOB, _LIVE)}
        index = JobIndex(lambda _: None, lambda: None)
        for record in records.values():
            index.changed(None, record)
        past = await self._past(job)
        surveyor = Surveyor(index, records.get, lambda namespace, workload: past.get((namespace, workload), {}))
        now = self._now().timestamp()
        survey = surveyor.survey(ground, now, extra=[job])
        outlook = await asyncio.to_thread(planned, survey.situation)
        found = answer(job.uid, survey, outlook, ground)
        return _as_it_runs(job, found) if job.status.phase.occupies else found

    async def _ground(self) -> Ground:
        classes = {r.key.name: DeviceClass.model_validate(r.obj) for r in await self._all(DEVICE_CLASS)}
        sites = sorted((Site.model_validate(r.obj) for r in await self._all(SITE)), key=lambda site: site.name)
        tenants = {r.key.name: Tenant.model_validate(r.obj).spec for r in await self._all(TENANT)}
        views = [site_view(site, capabilities(site)) for site in sites]
        return Ground(views, {site.name: tariff_of(site, classes) for site in sites}, tenants)

    async def _past(self, job: Job) -> Mapping[tuple[str, str], Mapping[Devices, Sequence[float]]]:
        """Past runs of this very work. For the jobs of others, what their own plans say is enough."""
        workload = workload_of(job.spec)
        try:
            record = await self._store.get(Key(PROFILE.name, job.namespace, workload))
        except NotFound:
            return {}
        return {(job.namespace, workload): points_of(record.obj)}

    async def _all(self, kind: Kind, fields: Selector | None = None) -> list[Record]:
        query = Query(kind, fields=fields) if fields else Query(kind)
        return list((await self._store.list(query)).records)


def _as_it_runs(job: Job, other: PlanStatus) -> PlanStatus:
    """For a job that has its devices: whether it is in time where it is; the rest are alternatives."""
    present = job.status.plan.chosen if job.status.plan else None
    if present is None:
        reported = (
            f"runs at {job.status.site}, and nothing is known of when it ends; if it were placed now: {other.message}"
        )
        return other.model_copy(update={"message": reported})
    shifted = _from_start(present, job)
    late = 0.0
    if job.spec.deadline:
        end = parse_timestamp(shifted.starts_at).timestamp() + shifted.seconds * (1 + shifted.uncertainty)
        late = max(0.0, end - parse_timestamp(job.spec.deadline).timestamp())
    shifted.late_seconds, shifted.meets_deadline = round(late, 3), late <= 0
    verdict = "meets the deadline" if late <= 0 else f"is expected {format_duration(max(1, round(late)))} late"
    moved = "it may be stopped and moved, since it is restartable" if job.spec.restartable else "it stays where it is"
    reported = f"runs at {job.status.site} and {verdict}" + (f"; {moved}" if late > 0 else "")
    here = (shifted.site, shifted.class_, shifted.count)
    options = [*([other.chosen] if other.chosen else []), *other.alternatives]
    options = [option for option in options if (option.site, option.class_, option.count) != here]
    update: dict[str, Any] = {"message": reported, "chosen": shifted, "alternatives": options}
    return other.model_copy(update=update)


def _from_start(option: PlanOption, job: Job) -> PlanOption:
    """The option with the times of the run as it really began."""
    if not job.status.started_at:
        return option.model_copy()
    began = parse_timestamp(job.status.started_at)
    end = datetime.fromtimestamp(began.timestamp() + option.seconds, began.tzinfo)
    return option.model_copy(update={"starts_at": timestamp(began), "ends_at": timestamp(end)})
