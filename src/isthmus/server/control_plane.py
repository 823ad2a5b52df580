"""The control plane: informers feed reconcilers, for as long as we lead.

Made anew each time we begin to lead: whatever it holds in memory is made again from the store and the engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from isthmus._kit.clock import utcnow
from isthmus.metrics import LEADING
from isthmus.reconcilers.deviceclasses import DeviceClassReconciler
from isthmus.reconcilers.engine_room import EngineRoom
from isthmus.reconcilers.experiment_index import ExperimentIndex
from isthmus.reconcilers.experiments import ExperimentReconciler
from isthmus.reconcilers.exposing import ExposureReconciler, MakeExposure, no_exposure
from isthmus.reconcilers.job_index import JobIndex
from isthmus.reconcilers.jobs import JobReconciler
from isthmus.reconcilers.placing import Placer
from isthmus.reconcilers.planning import DeadlinePlanner
from isthmus.reconcilers.profiling import ProfileKeeper
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.refusing import Refuser
from isthmus.reconcilers.sites import MakeEngine, SiteReconciler
from isthmus.reconcilers.steps import Steps
from isthmus.reconcilers.surveying import Surveyor
from isthmus.reconcilers.sweeping import Sweeper
from isthmus.reconcilers.tenants import TenantReconciler
from isthmus.resources.kinds import DEVICE_CLASS, EXPERIMENT, JOB, PROFILE, SITE, TENANT
from isthmus.runtime.controllers import Controller
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.storage.base import Blobs
from isthmus.store.base import Key, Record, Spaces, Store


class ControlPlane:
    """All reconcilers of one term of leading."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: Blobs,
        engines: EngineRoom,
        make_engine: MakeEngine,
        leadership: Leadership,
        make_exposure: MakeExposure = no_exposure,
        workers: int = 16,
        spaces: Spaces | None = None,
        others_write: bool = False,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._wake = asyncio.Event()
        self._engines = engines
        # An earlier version may have let pass what this one refuses. Work comes by the thousand: our API checked it.
        self._refuser = Refuser(store, leadership)
        accept, accept_work = self._refuser.accept, self._refuser.accept if others_write else None
        self._jobs, self._sites = Informer(store, JOB, accept=accept_work), Informer(store, SITE, accept=accept)
        self._tenants, self._classes = (
            Informer(store, TENANT, accept=accept),
            Informer(store, DEVICE_CLASS, accept=accept),
        )
        self._experiments = Informer(store, EXPERIMENT, accept=accept_work)
        self._recorder = Recorder(store, self._tenants)
        index = JobIndex(self._look_at_job, self._wake.set)
        shared: dict[str, Any] = {"store": store, "leadership": leadership}
        self._past_runs = Informer(store, PROFILE)
        self._profiles = ProfileKeeper(store, self._past_runs, self._tenants, leadership)
        surveyor = Surveyor(index, lambda uid: self._job_record(index, uid), self._profiles.past)
        jobs = JobReconciler(
            jobs=self._jobs, tenants=self._tenants, index=index, engines=engines, blobs=blobs,
            recorder=self._recorder, profiles=self._profiles, now=now, **shared,
        )  # fmt: skip
        self._site_reconciler = SiteReconciler(
            sites=self._sites, classes=self._classes, index=index, engines=engines, make_engine=make_engine,
            recorder=self._recorder, look=self._look_at_job, opened=self._wake.set, now=now, **shared,
        )  # fmt: skip
        self._exposures = ExposureReconciler(
            sites=self._sites, classes=self._classes, make_exposure=make_exposure, recorder=self._recorder, now=now,
            **shared,
        )  # fmt: skip
        runs = ExperimentIndex(self._look_at_experiment)
        experiments = ExperimentReconciler(
            experiments=self._experiments, jobs=self._jobs, sites=self._sites, index=runs, steps=Steps(engines),
            blobs=blobs, recorder=self._recorder, now=now, **shared,
        )  # fmt: skip
        tenants = TenantReconciler(tenants=self._tenants, index=index, blobs=blobs, spaces=spaces, **shared)
        classes = DeviceClassReconciler(classes=self._classes, sites=self._sites, **shared)
        self._placer = Placer(
            jobs=self._jobs, sites=self._sites, classes=self._classes, tenants=self._tenants, index=index,
            planner=DeadlinePlanner(index, surveyor, now), engines=engines, recorder=self._recorder, wake=self._wake,
            now=now, **shared,
        )  # fmt: skip
        self._sweeper = Sweeper(self._jobs, self._experiments, self._tenants, blobs, leadership)
        self._job_controller = Controller("jobs", jobs.reconcile, workers=workers)
        self._site_controller = Controller("sites", self._site_reconciler.reconcile, workers=4)
        self._exposure_controller = Controller("exposures", self._exposures.reconcile, workers=2)
        self._tenant_controller = Controller("tenants", tenants.reconcile, workers=2)
        self._class_controller = Controller("deviceclasses", classes.reconcile, workers=1)
        self._experiment_controller = Controller("experiments", experiments.reconcile, workers=2)
        self._jobs.on_change(runs.job_changed)  # first: the next lets go of the decoded form of jobs that are over
        self._jobs.on_change(index.changed)
        self._experiments.on_change(self._experiment_changed)
        self._sites.on_change(self._site_changed)
        self._tenants.on_change(self._tenant_changed)
        self._classes.on_change(self._class_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            LEADING.set(1)
            async with asyncio.TaskGroup() as group:
                informers = (
                    self._tenants, self._classes, self._sites, self._past_runs, self._experiments, self._jobs,
                )  # fmt: skip
                for informer in informers:
                    group.create_task(informer.run(), name=f"informer-{informer.kind.plural}")
                for informer in informers:
                    await informer.synced()
                sites = {record.key.name for record in self._sites.all()}
                self._engines.expect(sites)
                parts: list[Callable[[], Any]] = [
                    self._recorder.run,
                    self._placer.run,
                    self._sweeper.run,
                    self._profiles.run,
                    self._refuser.run,
                ]
                parts += [c.run for c in (self._site_controller, self._tenant_controller, self._class_controller)]
                for part in parts:
                    group.create_task(part())
                await self._site_reconciler.tried(sites, patience=5)
                group.create_task(self._exposure_controller.run())
                group.create_task(self._job_controller.run())
                group.create_task(self._experiment_controller.run())
        finally:
            LEADING.set(0)
            await asyncio.shield(asyncio.gather(self._site_reconciler.close(), self._exposures.close()))

    def _job_record(self, index: JobIndex, uid: str) -> Record | None:
        key = index.keys.get(uid)
        return self._jobs.get(key) if key else None

    def _look_at_job(self, key: Key) -> None:
        self._job_controller.queue.add(key)

    def _look_at_experiment(self, key: Key) -> None:
        self._experiment_controller.queue.add(key)

    def _experiment_changed(self, old: Record | None, new: Record | None) -> None:
        if new is not None and (old is None or _spec_changed(old, new)):
            self._experiment_controller.queue.add(new.key)

    def _site_changed(self, old: Record | None, new: Record | None) -> None:
        self._wake.set()
        record = new or old
        assert record is not None
        if old is None or new is None or _spec_changed(old, new):
            self._site_controller.queue.add(record.key)
        if old is None or new is None or _spec_changed(old, new) or _nodes_changed(old, new):
            self._exposure_controller.queue.add(record.key)
        for known in self._classes.all():
            self._class_controller.queue.add(known.key)

    def _tenant_changed(self, old: Record | None, new: Record | None) -> None:
        self._wake.set()
        if new is not None and (old is None or _spec_changed(old, new)):
            self._tenant_controller.queue.add(new.key)

    def _class_changed(self, old: Record | None, new: Record | None) -> None:
        if new is not None:
            self._class_controller.queue.add(new.key)
        if old is None or new is None or _spec_changed(old, new):
            for site in self._sites.all():
                self._site_controller.queue.add(site.key)
                self._exposure_controller.queue.add(site.key)


def _spec_changed(old: Record, new: Record) -> bool:
    before, after = old.obj["metadata"], new.obj["metadata"]
    marks = ("generation", "deletionTimestamp", "labels")
    return old.uid != new.uid or any(before.get(mark) != after.get(mark) for mark in marks)


def _nodes_changed(old: Record, new: Record) -> bool:
    before, after = old.obj.get("status") or {}, new.obj.get("status") or {}
    return any(before.get(part) != after.get(part) for part in ("phase", "version", "nodes"))
