"""Profiling: what past runs of each workload took is remembered, for the tenant whose runs they were.

Runs are counted in memory and written together every second, one write for each workload, however many runs it had:
ten thousand trivial jobs cost a few writes. What was not written before a crash is lost, and that is no harm: it is
knowledge, not state. A tenant keeps a limited number of profiles; the one that was not run for longest goes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.errors import AlreadyExists, Conflict, Invalid, IsthmusError, NotFound
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job, JobStatus
from isthmus.resources.kinds import PROFILE, TENANT
from isthmus.resources.profiles import POINTS_KEPT, RUNS_KEPT, Profile, ProfilePoint, ProfileSpec
from isthmus.runtime.declaring import Background, Observes
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.scheduling.planning.workloads import Key as Devices
from isthmus.scheduling.planning.workloads import key_of, workload_of
from isthmus.store.base import Key, Record, Store

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

log = logging.getLogger(__name__)

EVERY = 1.0
KEPT_PER_TENANT = 500
AT_ONCE = 50
"""Profiles written at a time; more wait for the next second."""
MOST_PENDING = 10_000


class ProfileKeeper:
    """Remembers how long work takes."""

    def __init__(self, store: Store, profiles: Informer, tenants: Informer, leadership: Leadership) -> None:
        self._store, self._profiles, self._tenants, self._leadership = store, profiles, tenants, leadership
        self._pending: dict[Key, dict[Devices, list[float]]] = {}
        self._last: dict[Key, str] = {}
        self._counts: dict[str, int] = {}

    def learn(self, job: Job, status: JobStatus) -> None:
        """A job ended: if it did all its work in one go, that is worth remembering."""
        seconds = status.usage.elapsed_seconds if status.usage else None
        if status.phase is not JobPhase.SUCCEEDED or not seconds or status.progress:
            return
        key = Key(PROFILE.name, job.namespace, workload_of(job.spec))
        if key not in self._pending and len(self._pending) >= MOST_PENDING:
            return
        runs = self._pending.setdefault(key, {}).setdefault(key_of(job.spec, status.chosen), [])
        runs.append(round(seconds, 3))
        del runs[:-RUNS_KEPT]
        self._last[key] = status.finished_at or ""

    def past(self, namespace: str, workload: str) -> Mapping[Devices, Sequence[float]]:
        """Recent run times, those not yet written included."""
        key = Key(PROFILE.name, namespace, workload)
        record = self._profiles.get(key)
        known = points_of(record.obj) if record else {}
        for devices, runs in self._pending.get(key, {}).items():
            known[devices] = [*known.get(devices, ()), *runs][-RUNS_KEPT:]
        return known

    async def run(self) -> None:
        """Write what was learnt, until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            await self.flush()

    async def flush(self) -> None:
        """Write some of what was learnt."""
        for key in list(self._pending)[:AT_ONCE]:
            runs, last = self._pending.pop(key), self._last.pop(key, "")
            tenant = self._tenants.get(Key(TENANT.name, "", key.namespace))
            if tenant is None or tenant.obj["metadata"].get("deletionTimestamp"):
                continue  # one that is made again under the same name must not learn of the old
            try:
                await self._write(key, runs, last)
            except (AlreadyExists, Conflict, NotFound):
                self._pending.setdefault(key, runs)  # what we know of it is old; the next time it is not
                self._last.setdefault(key, last)
            except IsthmusError as error:
                log.info("profile not written", extra={"error": str(error)})

    async def _write(self, key: Key, runs: Mapping[Devices, Sequence[float]], last: str) -> None:
        record = self._profiles.get(key)
        old = Profile.model_validate(record.obj) if record else None
        made = Profile(
            metadata=old.metadata if old else ObjectMeta(name=key.name, namespace=key.namespace),
            spec=merged(old.spec if old else ProfileSpec(), runs, last),
        )
        self._leadership.check()
        if old is None:
            await self._make_room(key.namespace)
            self._profiles.note(await self._store.create(PROFILE, made.to_json()))
        else:
            self._profiles.note(await self._store.update(PROFILE, made.to_json()))

    async def _make_room(self, namespace: str) -> None:
        if self._counts.get(namespace, 0) < KEPT_PER_TENANT:
            return
        own = [record for record in self._profiles.all() if record.key.namespace == namespace]
        oldest = min(own, key=lambda record: record.obj["spec"].get("lastRun") or "")
        try:
            await self._store.delete(oldest.key, uid=oldest.uid)
        except (NotFound, Invalid):
            return
        self._profiles.note_removed(oldest)

    def changed(self, old: Record | None, new: Record | None) -> None:
        """The informer's handler: counts the profiles of each tenant."""
        step = (new is not None) - (old is not None)
        record = new or old
        if record is not None and step:
            self._counts[record.key.namespace] = self._counts.get(record.key.namespace, 0) + step


def merged(spec: ProfileSpec, runs: Mapping[Devices, Sequence[float]], last: str) -> ProfileSpec:
    """What was known, with newer runs. What was used last is kept, if it becomes too much: pure."""
    points = {(point.class_, point.count): point.seconds for point in spec.points}
    for key, seconds in runs.items():
        points[key] = [*points.pop(key, ()), *seconds][-RUNS_KEPT:]
    kept = list(points.items())[-POINTS_KEPT:]
    return ProfileSpec(
        points=[ProfilePoint(class_=name, count=count, seconds=seconds) for (name, count), seconds in kept],
        runs=spec.runs + sum(len(seconds) for seconds in runs.values()),
        last_run=last or spec.last_run,
    )


def points_of(obj: Mapping[str, Any]) -> dict[Devices, list[float]]:
    """The run times in a profile."""
    return {(point["class"], point["count"]): list(point["seconds"]) for point in obj["spec"].get("points") or ()}


def declare(shared: Shared) -> Background:
    """The part that remembers how long work takes."""
    profiles = shared.profiles
    return Background(name="profiles", run=profiles.run, observes=(Observes(PROFILE, profiles.changed),))
