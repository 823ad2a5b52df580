"""Surveying: from jobs, sites, prices and profiles to the situation that is planned for. Reads, and changes nothing.

The same survey serves the placer, over its live index, and "what if" questions, over an index made for the occasion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import inf
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.durations import parse_duration
from isthmus.engines.base import Capabilities
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.states import SitePhase
from isthmus.resources.jobs import Job, JobSpec
from isthmus.resources.sites import Capacity, Site
from isthmus.resources.tenants import TenantSpec
from isthmus.resources.work.plans import LATE_COST_PER_HOUR, Saving
from isthmus.scheduling.demands import Room, Tariff
from isthmus.scheduling.ledger import Occupying
from isthmus.scheduling.placement import SiteView
from isthmus.scheduling.planning.estimates import ASSUMED_SECONDS, estimate
from isthmus.scheduling.planning.planning import Holder, Situation, Task
from isthmus.scheduling.planning.timelines import Timeline
from isthmus.scheduling.planning.ways import Ways, ways_of
from isthmus.scheduling.planning.workloads import Key as Devices
from isthmus.scheduling.planning.workloads import choices_of, key_of, manifest_profile, workload_of
from isthmus.store.base import Record

Past = Callable[[str, str], Mapping[Devices, Sequence[float]]]
"""Recent run times of a workload of a tenant."""

MOST_WAITING = 192
"""Jobs that are looked at for one plan, those with the nearest deadlines. The others come when these have started."""
RESTORE = 10.0
"""Seconds that a stopped job is expected to need before it goes on."""
_SPARED = 60.0
"""A job that was stopped before is not stopped again before it ran this long; twice that after the second stop, …"""
_MOST_DOUBLINGS = 10
_OVERRUN = 0.1
"""A job that takes longer than expected is expected to take a tenth longer still, again and again."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What jobs are placed on."""

    sites: Sequence[SiteView]
    tenants: Mapping[str, TenantSpec]
    full: Mapping[str, str] = field(default_factory=dict)
    """Of tenants whose storage is used, what takes it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The situation, and for each job that is to be planned its ways and its deadline as it was written."""

    situation: Situation
    ways: Mapping[str, Ways]
    deadlines: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """By uid."""
        return {task.uid: task for task in self.situation.tasks}


class Surveyor:
    """Makes surveys over an index of jobs."""

    def __init__(self, index: JobIndex, record: Callable[[str], Record | None], past: Past) -> None:
        self._index, self._record, self._past = index, record, past
        self._lengths: dict[str, tuple[int, float | None]] = {}

    def survey(self, ground: Ground, now: float, extra: Iterable[Job] = ()) -> Survey:
        """The situation of the most pressing promised jobs, and of extra ones, in place of those that there are."""
        waiting = nsmallest(MOST_WAITING, ((due, uid) for uid, due in self._index.promised.items()))
        wanted = {job.uid: job for _, uid in waiting if (job := self._job(uid)) is not None}
        asked = {job.uid: job for job in extra}
        ways: dict[str, Ways] = {}
        tasks = []
        for uid, job in {**wanted, **asked}.items():
            ways[uid] = self.ways(job.namespace, job.spec, ground)
            tasks.append(task_of(job, ways[uid]))
        lines = {}
        taken = self._taken(now, without=set(asked))
        for site in ground.sites:
            if not site.closed:
                lines[site.name] = Timeline(now, site.capacity, taken.get(site.name, ()))
        holders = tuple(self._holders(ground, now, without=set(asked))) if tasks or self._index.movable else ()
        situation = Situation(now, lines, tuple(tasks), holders, RESTORE)
        return Survey(situation, ways, {uid: job.spec.deadline for uid, job in {**wanted, **asked}.items()})

    def ways(self, tenant: str, spec: JobSpec, ground: Ground) -> Ways:
        """The ways to run a job."""
        keys = [key_of(spec, chosen) for chosen in choices_of(spec)]
        known = estimate(keys, manifest_profile(spec), self._past(tenant, workload_of(spec)))
        return ways_of(tenant, spec, known, ground.sites, ground.tenants.get(tenant))

    def _job(self, uid: str) -> Job | None:
        record = self._record(uid)
        return self._index.job(record) if record is not None else None

    def _taken(self, now: float, without: set[str]) -> dict[str, list[tuple[float, Room]]]:
        found: dict[str, list[tuple[float, Room]]] = {}
        seen = {}
        for entry in self._index.ledger.occupying():
            if entry.uid in without or (record := self._record(entry.uid)) is None:
                continue
            seen[entry.uid] = self._length(entry, record)
            end = expected_end(record.obj, seen[entry.uid][1], now)
            found.setdefault(entry.site, []).append((end, entry.demand.room))
        self._lengths = seen
        return found

    def _length(self, entry: Occupying, record: Record) -> tuple[int, float | None]:
        """How long a run is expected to take from its start; None: nobody knows. Worked out once for each version."""
        known = self._lengths.get(entry.uid)
        if known is not None and known[0] == record.version:
            return known
        chosen = (record.obj["status"].get("plan") or {}).get("chosen")
        if chosen:
            return record.version, chosen["seconds"] * (1 + chosen["uncertainty"])
        job = self._index.job(record)
        runs = self._past(job.namespace, workload_of(job.spec)).get(key_of(job.spec, None))
        if runs:
            return record.version, sorted(runs)[len(runs) // 2]
        return record.version, job.spec.resources.seconds

    def _holders(self, ground: Ground, now: float, without: set[str]) -> Iterable[Holder]:
        stoppable = sorted(self._index.stoppable - without)
        for entry in [entry for uid in stoppable if (entry := self._index.ledger.occupied_by(uid))]:
            job = self._job(entry.uid)
            if job is None or job.spec.restartable is None or _is_spared(job, now):
                continue
            record = self._record(entry.uid)
            assert record is not None
            end = expected_end(record.obj, self._length(entry, record)[1], now)
            task = task_of(job, self.ways(job.namespace, job.spec, ground))
            tariff = next((site.tariff for site in ground.sites if site.name == entry.site), Tariff())
            left = replace(task, remaining=_left_if_stopped(job, now))
            yield Holder(
                entry.uid,
                entry.site,
                entry.demand.room,
                end,
                parse_duration(job.spec.restartable.grace),
                left,
                tariff.rate(entry.demand.room),
            )


def task_of(job: Job, ways: Ways) -> Task:
    """What is left of a job, as work to be placed."""
    spec = job.spec
    deadline = parse_timestamp(spec.deadline).timestamp() if spec.deadline else inf
    late = LATE_COST_PER_HOUR if spec.late_cost_per_hour is None else spec.late_cost_per_hour
    return Task(
        uid=job.uid,
        tenant=job.namespace,
        ways=ways.found,
        deadline=deadline,
        weight=late / 3600 if spec.deadline else 0.0,
        saving=spec.saving or Saving.COST,
        remaining=1 - (job.status.progress or 0.0),
    )


def expected_end(obj: Mapping[str, Any], length: float | None, now: float) -> float:
    """When a run is expected to leave its room. One that overran is expected to do so for a while yet."""
    status = obj["status"]
    began = parse_timestamp(status["startedAt"]).timestamp() if status.get("startedAt") else now
    if stop := status.get("preemption"):
        grace = parse_duration((obj["spec"].get("restartable") or {}).get("grace", "30s"))
        return max(now + 0.5, parse_timestamp(stop["askedAt"]).timestamp() + grace)
    if length is None:
        return now + ASSUMED_SECONDS
    return max(began + length, now + max(1.0, _OVERRUN * (now - began)))


def _left_if_stopped(job: Job, now: float) -> float:
    """What remains of a running job if it is stopped now; all of it if it keeps nothing."""
    done = job.status.progress or 0.0
    plan, restart = job.status.plan, job.spec.restartable
    if restart is None or not restart.checkpoint or plan is None or plan.chosen is None or not job.status.started_at:
        return 1 - done
    ran = max(0.0, now - parse_timestamp(job.status.started_at).timestamp())
    return (1 - done) * max(0.05, 1 - ran / max(plan.chosen.seconds, 1e-3))


def _is_spared(job: Job, now: float) -> bool:
    stops = sum(past.reason == "Preempted" for past in job.status.tries or ())
    if not stops or not job.status.started_at:
        return False
    ran = now - parse_timestamp(job.status.started_at).timestamp()
    return ran < _SPARED * 2.0 ** min(stops - 1, _MOST_DOUBLINGS)


def site_view(
    site: Site, able: Capabilities | None, classes: Mapping[str, DeviceClass], *, connected: bool = True
) -> SiteView:
    """A site, as placement sees it."""
    closed = None
    if site.metadata.deletion_timestamp:
        closed = "it is being removed"
    elif not site.spec.enabled:
        closed = "it is disabled"
    elif not connected or site.status.phase is not SitePhase.READY:
        closed = f"it is not ready ({site.status.phase.value}); its administrators see why"
    most: dict[str, int] = {}
    machine = Room()
    for node in site.status.nodes:
        machine = Room(max(machine.milli_cpus, int(node.cpus * 1000)), max(machine.memory, node.memory_bytes))
        for name, count in node.devices.items():
            most[name] = max(count, most.get(name, 0))
    return SiteView(
        name=site.name,
        attributes=site.attributes,
        capacity=_room(site.status.capacity),
        closed=closed,
        queues=bool(able and able.queues),
        multi_node=bool(able and able.multi_node),
        images=bool(able and able.images),
        image_files=bool(able and able.image_files),
        environments=bool(able and able.environments),
        registries=tuple(site.spec.registries.allowed) if site.spec.registries else (),
        largest=tuple(sorted(most.items())),
        machine=machine if machine.milli_cpus else None,
        others=_room(site.status.others),
        default_image=not (able and able.needs_image),
        tariff=tariff_of(site, classes),
    )


def _room(amounts: Capacity | None) -> Room:
    if amounts is None:
        return Room()
    return Room(int(amounts.cpus * 1000), amounts.memory_bytes, tuple(sorted(amounts.devices.items())))


def tariff_of(site: Site, classes: Mapping[str, DeviceClass]) -> Tariff:
    """Prices at a site: its own, and where it does not say, those of the classes."""
    prices = {name: price for name, cls in classes.items() if (price := cls.spec.price_per_hour) is not None}
    cpu = 0.0
    if site.prices is not None:
        prices |= site.prices.devices
        cpu = site.prices.cpu
    return Tariff(cpu, prices, {name: cls.spec.power.busy_watts for name, cls in classes.items() if cls.spec.power})
