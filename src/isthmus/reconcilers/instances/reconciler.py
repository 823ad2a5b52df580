"""Instance: sees what is there, asks the rules, does one step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import reach
from isthmus.engines.base import PortEngine
from isthmus.errors import AlreadyExists, Conflict, EngineRefused, Invalid, NotFound, Unavailable
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.reconcilers.writing import Writer
from isthmus.resources.frame.states import InstancePhase, JobPhase
from isthmus.resources.frame.validation import validate
from isthmus.resources.instances import Instance, InstanceStatus
from isthmus.resources.jobs import Intent, Job
from isthmus.resources.kinds import INSTANCE, JOB, TEMPLATE
from isthmus.resources.templates import Template
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, exists
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Record, Store

from .starting_rules import InstanceStep, Step, decide, job_name, job_of, person_of

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

Address = Callable[[str, str], str | None]
"""Where the instance of this tenant and name is found; None: nowhere."""
_SITE_SECONDS = 5.0


class InstanceReconciler:
    """Starts and stops instances."""

    def __init__(
        self,
        *,
        store: Store,
        instances: Informer,
        templates: Informer,
        jobs: Informer,
        engines: EngineRegistry,
        leadership: Leadership,
        address: Address,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._instances, self._templates, self._jobs, self._engines = instances, templates, jobs, engines
        self._address, self._now = address, now
        self._writer = Writer(store, leadership, instances)
        self._job_writer = Writer(store, leadership, jobs)

    async def reconcile(self, key: Key) -> Result:
        """One step for one instance."""
        record = self._instances.get(key)
        if record is None or "deletionTimestamp" in record.obj["metadata"]:
            return DONE  # its job is its own, and goes with it
        instance = Instance.model_validate(record.obj)
        template, job = self._template(instance), self._job(instance)
        listens = await self._listens(instance, job)
        url = self._address(instance.namespace, instance.name)
        decision = decide(instance, template, job, listens=listens, url=url, now=self._now())
        if decision.step is Step.START and template is not None:
            decision = await self._start(instance, template)
        reach("instance:decided")
        if decision.stop:
            record = await self._writer.whole(record, decision.status, intent="Stop")
        elif decision.status != instance.status:
            record = await self._writer.status(record, decision.status)
        if decision.step is Step.END and job is not None:
            await self._end(job)
        return Result(requeue_after=decision.look_after)

    def _template(self, instance: Instance) -> Template | None:
        found = self._templates.get(Key(TEMPLATE.name, "", instance.spec.template))
        return Template.model_validate(found.obj) if found else None

    def _job(self, instance: Instance) -> Job | None:
        """The job of the present start, if it is its own."""
        if not instance.status.starts:
            return None
        found = self._jobs.get(Key(JOB.name, instance.namespace, job_name(instance)))
        return Job.model_validate(found.obj) if found is not None and _owns(instance, found) else None

    async def _listens(self, instance: Instance, job: Job | None) -> bool:
        """Whether the program takes connections; asked only until it does."""
        waits = instance.status.phase in (InstancePhase.PENDING, InstancePhase.STARTING)
        if job is None or job.status.phase is not JobPhase.RUNNING or not waits or instance.status.port is None:
            return False
        engine: object = self._engines.find(job.status.site or "")
        if not isinstance(engine, PortEngine):
            return False
        try:
            stream = await engine.connect(job.run_id, instance.status.port)
        except (Unavailable, NotFound, EngineRefused):
            return False
        await stream.close()
        return True

    async def _start(self, instance: Instance, template: Template) -> InstanceStep:
        """Make the job, or find it made."""
        status = instance.status
        sites = [name for name in self._engines.names() if isinstance(self._engines.find(name), PortEngine)]
        if not sites:
            why = "no site that is connected leads to ports of its jobs"
            return InstanceStep(_waiting(status, "NoSite", why), look_after=_SITE_SECONDS)
        try:
            obj = validate(JOB, job_of(instance, template, sorted(sites)))
        except Invalid as error:
            return InstanceStep(_waiting(status, "InvalidTemplate", f"its job is refused: {error.message}"))
        obj["status"] = person_of(instance).to_json()
        reach("instance:before")
        try:
            await self._job_writer.create(obj)
        except AlreadyExists:
            there = self._jobs.get(Key(JOB.name, instance.namespace, job_name(instance)))
            if there is None or _owns(instance, there):
                raise Conflict(f"{job_name(instance)} was made a moment ago; the watch will say by whom") from None
            # Another job has the name: the next start has another one.
            return InstanceStep(status.model_copy(update={"starts": status.starts + 1}))
        reach("instance:after")
        return InstanceStep(status.model_copy(update={"job": job_name(instance), "port": template.spec.port}))

    async def _end(self, job: Job) -> None:
        record = self._jobs.get(Key(JOB.name, job.namespace, job.name))
        if record is not None and job.spec.intent is not Intent.CANCEL:
            await self._job_writer.spec(record, intent=Intent.CANCEL.value)


def _waiting(status: InstanceStatus, reason: str, message: str) -> InstanceStatus:
    return status.model_copy(update={"reason": reason, "message": message})


def _owns(instance: Instance, job: Record) -> bool:
    owners = job.obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == instance.uid for owner in owners)


def declare(shared: Shared) -> Reconciler:
    """The part that starts and stops instances."""
    instances = InstanceReconciler(
        store=shared.store,
        instances=shared.informer(INSTANCE),
        templates=shared.informer(TEMPLATE),
        jobs=shared.informer(JOB),
        engines=shared.engines,
        leadership=shared.leadership,
        address=shared.address,
        now=shared.now,
    )

    def of_template(record: Record) -> list[Key]:
        known = shared.informer(INSTANCE).all()
        return [found.key for found in known if found.obj["spec"].get("template") == record.key.name]

    return Reconciler(
        name="instances",
        kind=INSTANCE,
        reconcile=instances.reconcile,
        workers=4,
        watches=(Watches(INSTANCE, when=exists), Watches(TEMPLATE, when=exists, keys=of_template)),
        owns=(JOB,),
        after=("sites",),
    )
