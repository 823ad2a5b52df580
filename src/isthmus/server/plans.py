"""What if: a plan for a job that is not there yet, or for another deadline, from the store alone.

Everything is read at the moment of the question, so every replica can answer, and nothing is changed. The answer names
sites, devices, times and costs; of other tenants' jobs it says no more than when room is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.durations import format_duration
from isthmus.errors import Conflict, NotFound
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.reconcilers.placement.planning import DeadlinePlanner, answer, place, planned
from isthmus.reconcilers.placement.profiling import points_of
from isthmus.reconcilers.placement.surveying import Ground, Surveyor, site_view
from isthmus.reconcilers.sites.reconciler import capabilities
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.selectors import Requirement, Selector
from isthmus.resources.frame.states import TERMINAL
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import DEVICE_CLASS, JOB, PROFILE, SITE, TENANT, Kind
from isthmus.resources.sites import Site
from isthmus.resources.tenants import Tenant, full_storage
from isthmus.resources.work.plans import PlanOption, PlanStatus
from isthmus.scheduling.demands import demand_of
from isthmus.scheduling.ledger import Waiting
from isthmus.scheduling.planning.workloads import Key as Devices
from isthmus.scheduling.planning.workloads import workload_of
from isthmus.store.base import Key, Query, Record, Store

Past = Mapping[tuple[str, str], Mapping[Devices, Sequence[float]]]
"""Run times of past runs, by tenant, workload and devices."""
_LIVE = Selector((Requirement("status.phase", "notin", frozenset(phase.value for phase in TERMINAL)),))


class StorePlans:
    """Answers what-if questions."""

    def __init__(self, store: Store, now: Callable[[], datetime] = utcnow) -> None:
        self._store, self._now = store, now

    async def prepare(self, job: Job) -> Callable[[], PlanStatus]:
        """Read what is needed, and return what works out the plan for the job as it is given: pure, for a thread.

        Its uid says whether it is a job that there is.
        """
        if job.status.phase.terminal:
            raise Conflict(f"job {job.name} has {job.status.phase.value.lower()}; there is nothing left to plan")
        there = {kind: await self._all(kind) for kind in (DEVICE_CLASS, SITE, TENANT)}
        jobs, past = await self._all(JOB, _LIVE), await self._past(job)
        now = self._now()
        return lambda: _answer(job, _ground(there), jobs, past, now)

    async def _past(self, job: Job) -> Past:
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


def _answer(job: Job, ground: Ground, jobs: Sequence[Record], past: Past, now: datetime) -> PlanStatus:
    records = {record.uid: record for record in jobs}
    index = JobIndex(lambda _: None, lambda: None)
    for record in jobs:
        index.changed(None, record)
    surveyor = Surveyor(index, records.get, lambda namespace, workload: past.get((namespace, workload), {}))
    made = None
    if job.spec.deadline is None and not job.status.phase.occupies:
        index.ledger.put(Waiting(job.uid, demand_of(job.namespace, job.spec), job.spec.priority))
        planner = DeadlinePlanner(index, surveyor, lambda: now)
        due = planner.due(ground)
        made = place(index, planner, ground, planned(due) if due else None).made
    survey = surveyor.survey(ground, now.timestamp(), extra=[job])
    found = answer(job.uid, survey, planned(survey.situation), ground, made)
    return _as_it_runs(job, found) if job.status.phase.occupies else found


def _ground(there: Mapping[Kind, Sequence[Record]]) -> Ground:
    classes = {r.key.name: DeviceClass.model_validate(r.obj) for r in there[DEVICE_CLASS]}
    sites = sorted((Site.model_validate(r.obj) for r in there[SITE]), key=lambda site: site.name)
    tenants = [Tenant.model_validate(r.obj) for r in there[TENANT]]
    views = [site_view(site, capabilities(site), classes) for site in sites]
    return Ground(views, {tenant.name: tenant.spec for tenant in tenants}, full_storage(tenants))


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
