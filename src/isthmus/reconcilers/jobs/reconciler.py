"""Job: from accepted to ended, one idempotent step at a time.

The order of steps is what makes a crash harmless. A site is written down (`Placed`, with the finalizer) before
the engine is asked; the engine looks for the run before it starts one; outputs are kept before the end is
written; the working folder is freed after. Whoever comes back after a crash repeats the last step and finds it
done.

Decisions are made by what the informer shows, which may be older than the store. A write is then refused by its
version. A submission is not: an engine that lost a run which was seen to run would start it again. So a run is only
submitted when the store is known to have nothing later (`_check_current`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.crashpoints import reach
from isthmus._kit.durations import parse_duration
from isthmus.engines.base import EndReason, Engine, Observation, RunState
from isthmus.errors import Conflict, EngineRefused, Invalid, NotFound, SiteUnavailable
from isthmus.metrics import JOBS_ENDED
from isthmus.reconcilers.placement.profiling import ProfileKeeper
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.reconcilers.typed import Typed
from isthmus.reconcilers.usage_keeping import UsageKeeper
from isthmus.reconcilers.writing import Writer
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import RUN_FINALIZER, Intent, Job, JobStatus, Outputs
from isthmus.resources.kinds import JOB, SITE, TENANT
from isthmus.resources.tenants import Tenant
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Observes, Reconciler
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.storage.base import Blobs
from isthmus.storage.trees import TreeSink
from isthmus.store.base import Key, Record, Store

from . import lifecycle
from .arrays import ArrayKeeper
from .dependencies import Other, circle, outlook
from .engine_queues import EngineQueues, keep_held, reporting_waits
from .image_resolving import ImageResolver, Refused, Resolved
from .inputs import Inputs
from .job_index import JobIndex, needs_resolving
from .log_files import keep_logs, log_patterns
from .registry_logins import RegistryLogins
from .reporting import reported_values
from .runs import run_of

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared


RESOLVING_SECONDS = 1.0
"""After which the job says that a registry takes its time."""


class JobReconciler:
    """Brings jobs to their end."""

    def __init__(
        self,
        *,
        store: Store,
        jobs: Informer,
        tenants: Informer,
        index: JobIndex,
        engines: EngineRegistry,
        blobs: Blobs,
        leadership: Leadership,
        recorder: Recorder,
        profiles: ProfileKeeper,
        usage: UsageKeeper,
        images: ImageResolver,
        logins: RegistryLogins,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._profiles, self._usage, self._images, self._logins = profiles, usage, images, logins
        self._store, self._jobs, self._tenants = store, jobs, tenants
        self._index, self._engines, self._blobs = index, engines, blobs
        self._leadership, self._recorder, self._now = leadership, recorder, now
        self._writer = Writer(store, leadership, jobs)
        self._arrays = ArrayKeeper(jobs, index, self._writer, recorder)
        self._queues = EngineQueues(jobs, engines)
        self._inputs = Inputs(jobs, blobs)
        self._typed = Typed()

    async def reconcile(self, key: Key) -> Result:
        """One step for one job."""
        record = self._jobs.get(key)
        if record is None:
            return DONE
        job = self._index.job(record)
        if job.metadata.deletion_timestamp:
            return await self._remove(record, job)
        if job.status.phase.terminal:
            return await self._after_end(record, job)
        if status := lifecycle.missed_deadline(job, self._now()):
            record = await self._writer.status(record, status)
            job = self._index.job(record)
            self._recorder.say(job, "DeadlineMissed", f"the result was wanted by {job.spec.deadline}", warning=True)
        if job.spec.image and self._needs_resolving(job):
            if (waits := await self._find_image(record, job)) is not None:
                self._index.unready(job.uid)
                return waits
            record = self._jobs.get(record.key) or record
            job = self._index.job(record)
        if job.spec.array:
            return await self._array(record, job)
        if job.status.phase is JobPhase.PENDING:
            return await self._pending(record, job)
        try:
            return await self._follow(record, job)
        except SiteUnavailable as error:
            if job.status.phase is JobPhase.PLACED:
                with contextlib.suppress(Conflict, NotFound):  # changed meanwhile: it is reported next time
                    await self._notify(job, f"waits for site {job.status.site}: {error.message}")
            raise

    async def _array(self, record: Record, job: Job) -> Result:
        # The array waits as a whole: its elements are made when what it depends on holds, and depend on nothing.
        if job.status.phase is JobPhase.PENDING and job.spec.intent is not Intent.CANCEL:
            hindered, record = await self._hindered(record, job)
            if hindered is not None:
                return hindered
        return await self._arrays.reconcile(record, self._index.job(record), self._now())

    # Before it has a site

    async def _pending(self, record: Record, job: Job) -> Result:
        now = self._now()
        if job.spec.intent is Intent.CANCEL:
            self._index.unready(job.uid)
            return await self._cancelled_early(record, job)
        if job.spec.intent is Intent.HOLD:
            self._index.unready(job.uid)
            return await self._wait(record, job, lifecycle.waiting(job, "Held", "held; isthmus release lets it go on"))
        hindered, record = await self._hindered(record, job)
        if hindered is not None:
            return hindered
        job = self._index.job(record)
        if status := lifecycle.sooner(job, now):
            record = await self._writer.status(record, status)
            job = self._index.job(record)
        if job.status.retry_at and (delay := (parse_timestamp(job.status.retry_at) - now).total_seconds()) > 0:
            self._index.unready(job.uid)
            return Result(requeue_after=min(delay, 3600))
        self._index.ready(job.uid, self._index.demand(record), job.spec.priority, deadline=job.spec.deadline)
        return self._at_deadline(job)

    def _needs_resolving(self, job: Job) -> bool:
        """Whether its tag is to be looked up: as soon as it is accepted, whatever else it waits for."""
        if not self._images.works or job.status.phase is not JobPhase.PENDING or job.spec.intent is Intent.CANCEL:
            return False
        return job.spec.image is not None and needs_resolving(job.spec.image, job.status.to_json())

    async def _find_image(self, record: Record, job: Job) -> Result | None:
        """Find out which bytes its image is, before it is placed; what is to be waited for, or None if it may go on."""
        try:
            answer = self._images.of(record.key, job)
        except Invalid as error:
            await self._end(
                record, job, lifecycle.gave_up(job, JobPhase.FAILED, "BadImage", error.message, self._now())
            )
            return DONE
        if answer is None:
            text = f"asking the registry which bytes {job.spec.image} is"
            if job.status.reason != "ResolvingImage" and self._is_older(job, RESOLVING_SECONDS):
                await self._writer.status(record, lifecycle.waiting(job, "ResolvingImage", text))
            return Result(requeue_after=RESOLVING_SECONDS)
        if isinstance(answer, Resolved):
            await self._writer.status(record, lifecycle.resolved(job, answer.digest))
            return None
        if isinstance(answer, Refused) and not any(s.spec.driver == "kubernetes" for s in self._images.sites_for(job)):
            # Clusters may know the registry by accounts or mirrors of their own; all others ask as we do.
            status = lifecycle.gave_up(job, JobPhase.FAILED, "ImageRefused", answer.message, self._now())
            await self._end(record, job, status)
            return DONE
        await self._writer.status(record, lifecycle.left_to_site(job, answer.message, self._now()))
        return None

    def _is_older(self, job: Job, seconds: float) -> bool:
        made = parse_timestamp(job.metadata.creation_timestamp or "")
        return (self._now() - made).total_seconds() > seconds

    async def _hindered(self, record: Record, job: Job) -> tuple[Result | None, Record]:
        """Whether what the job depends on keeps it from going on: then the result, else the record as it is now."""
        if not job.spec.dependencies:
            return None, record
        found = outlook(job, lambda name: self._other(job.namespace, name))
        bound, lacking = await self._inputs.bind(job, found.resolved)
        hopeless, reason = found.hopeless or lacking, "DependencyFailed"
        # Looked for once: whoever closes a circle is the last of it, and is awaited when it is first seen.
        new = job.status.dependencies is None and self._index.is_awaited(record.key)
        if not hopeless and new and (way := circle(job.name, lambda name: self._awaits(job.namespace, name))):
            hopeless, reason = f"it waits for itself: {' waits for '.join(way)}", "DependencyCircle"
        if hopeless:
            self._index.unready(job.uid)
            await self._end(record, job, lifecycle.gave_up(job, JobPhase.CANCELLED, reason, hopeless, self._now()))
            return DONE, record
        status = job.status.model_copy(update={"dependencies": bound})
        if found.waits_for and not job.spec.array and (queued := self._queues.queued(job)):
            demand = replace(self._index.demand(record), sites=(queued.site,))
            if bound != job.status.dependencies:
                status.reason = status.message = None
                record = await self._writer.status(record, status)
            self._index.ready(job.uid, demand, job.spec.priority)
            return self._at_deadline(job), record
        if found.waits_for:
            self._index.unready(job.uid)
            status.reason, status.message = "DependencyWaiting", found.waits_for
            return await self._wait(record, job, status), record
        if bound != (job.status.dependencies or []) or status.reason == "DependencyWaiting":
            status.reason = status.message = None
            record = await self._writer.status(record, status)
        return None, record

    def _awaits(self, namespace: str, name: str) -> list[str]:
        """The jobs that a job waits for, if it waits."""
        record = self._jobs.get(Key(JOB.name, namespace, name))
        if record is None or record.obj["status"]["phase"] != JobPhase.PENDING:
            return []
        return [dependency["job"] for dependency in record.obj["spec"].get("dependencies") or ()]

    async def _cancelled_early(self, record: Record, job: Job) -> Result:
        text = "cancelled before it started"
        await self._end(record, job, lifecycle.gave_up(job, JobPhase.CANCELLED, "Cancelled", text, self._now()))
        return DONE

    async def _wait(self, record: Record, job: Job, status: JobStatus) -> Result:
        if status != job.status:
            await self._writer.status(record, status)
            self._recorder.say(job, status.reason or "Waiting", status.message or "")
        return self._at_deadline(job)

    def _at_deadline(self, job: Job) -> Result:
        if job.spec.deadline is None or any(c.type == "DeadlineMissed" for c in job.status.conditions):
            return DONE
        left = parse_timestamp(job.spec.deadline) - self._now()
        return Result(requeue_after=max(0.05, min(left, timedelta(hours=1)).total_seconds()))

    def _other(self, namespace: str, name: str) -> Other | None:
        record = self._jobs.get(Key(JOB.name, namespace, name))
        if record is None:
            return None
        status = record.obj["status"]
        return Other(record.uid, JobPhase(status["phase"]), started=bool(status.get("startedAt")))

    # At its site

    async def _follow(self, record: Record, job: Job) -> Result:
        site = job.status.site or ""
        if await self._site_is_gone(site):
            lost = Observation(RunState.ENDED, reason=EndReason.NODE_LOST, message=f"site {site} was removed")
            await self._end(record, job, lifecycle.ended(job, lost, None, self._now()))
            return DONE
        engine = self._engines.of(site)
        seen = await engine.observe(job.run_id)
        if job.status.phase in (JobPhase.PLACED, JobPhase.QUEUED) and _unresolved(job):
            record, hopeless = await self._resolve(record, job)
            job = self._index.job(record)
            if hopeless and (seen is None or seen.state is not RunState.RUNNING):
                return await self._drop(record, job, engine, hopeless)
        if seen is None:
            if job.status.phase in (JobPhase.PLACED, JobPhase.QUEUED):
                # Queued and gone: the engine lost it before it began. Submitting looks for it once more.
                return await self._submit(record, job, engine)
            seen = Observation(
                RunState.ENDED, reason=EndReason.NODE_LOST, message=f"site {site} no longer knows the run"
            )
        return await self._seen(record, job, engine, seen)

    async def _resolve(self, record: Record, job: Job) -> tuple[Record, str | None]:
        """What became of the jobs that it waits for in the engine's queue; and why it can never begin, if so."""
        found = outlook(job, lambda name: self._other(job.namespace, name))
        if found.resolved != job.status.dependencies:
            status = job.status.model_copy(update={"dependencies": found.resolved})
            record = await self._writer.status(record, status)
        return record, found.hopeless

    async def _drop(self, record: Record, job: Job, engine: Engine, hopeless: str) -> Result:
        """It waited in the engine's queue for what will never be."""
        self._leadership.check()
        await engine.cancel(job.run_id, grace=0)
        seen = await engine.observe(job.run_id)
        if seen is not None and seen.state is not RunState.ENDED:
            return Result(requeue_after=2)
        status = lifecycle.gave_up(job, JobPhase.CANCELLED, "DependencyFailed", hopeless, self._now())
        await self._end(record, job, status)
        await engine.tidy(job.run_id)
        return DONE

    async def _submit(self, record: Record, job: Job, engine: Engine) -> Result:
        if job.spec.intent is Intent.CANCEL:
            # A run that is not there yet may still be on its way from a control plane that lost the lead: bar it.
            self._leadership.check()
            await engine.cancel(job.run_id, grace=0)
            if seen := await engine.observe(job.run_id):
                return await self._seen(record, job, engine, seen)
            return await self._cancelled_early(record, job)
        tenant = self._tenants.get(Key(TENANT.name, "", job.namespace))
        parent = self._parent(job)
        queued = self._queues.queued(job) if _unresolved(job) else None
        if _unresolved(job) and queued is None:
            return Result(requeue_after=2)  # between two phases: what it waits for is about to end
        try:
            run = run_of(
                job,
                self._typed.of(Tenant, tenant) if tenant else None,
                after=queued.after if queued else (),
                array=parent.spec.array if parent else None,
                login=self._logins.of(job) if job.spec.image else None,
                placed_here=job.uid in self._index.placed_here,
            )
            engine.check(run)
            files = await self._inputs.files(job, parent)
            await self._check_current(record)
            self._leadership.check()
            reach("submit:before")
            if files is None:
                seen = await engine.submit(run)
            else:
                seen = await reporting_waits(
                    engine,
                    run.id,
                    engine.submit(run, files),
                    lambda far: self._notify(job, f"sending its files: {far}"),
                )
            reach("submit:after")
        except EngineRefused as error:
            await self._end(
                record, job, lifecycle.gave_up(job, JobPhase.FAILED, "EngineRefused", error.message, self._now())
            )
            return DONE
        except (NotFound, Invalid) as error:
            message = f"the files sent along cannot be used: {error.message}"
            await self._end(record, job, lifecycle.gave_up(job, JobPhase.FAILED, "FilesMissing", message, self._now()))
            return DONE
        return await self._seen(self._jobs.get(record.key) or record, job, engine, seen)

    async def _check_current(self, record: Record) -> None:
        """Drop a decision about a job that has changed: raises Conflict.

        The store is not asked about a version that we wrote ourselves, with which most runs are submitted. It is after
        a write whose answer was lost, and about what others wrote: users, and whoever led before.
        """
        if self._jobs.is_own(record):
            return
        try:
            current = await self._store.get(record.key)
        except NotFound as error:
            raise Conflict(error.message) from None
        self._jobs.learn(current)
        if current.version != record.version:
            raise Conflict(f"{record.key} has changed since it was looked at")

    async def _notify(self, job: Job, message: str) -> None:
        record = self._jobs.get(Key(JOB.name, job.namespace, job.name))
        if record is not None and record.uid == job.uid:
            status = self._index.job(record).status
            if status.message != message:
                await self._writer.status(record, status.model_copy(update={"message": message}))

    def _parent(self, job: Job) -> Job | None:
        """The array of which a job is an element."""
        for owner in job.metadata.owner_references or ():
            parent = self._jobs.get(Key(JOB.name, job.namespace, owner.name))
            if parent is not None and parent.uid == owner.uid:
                return self._index.job(parent)
        return None

    async def _seen(self, record: Record, job: Job, engine: Engine, seen: Observation) -> Result:
        if seen.state is RunState.ENDED:
            await self._finish(record, job, engine, seen)
            return DONE
        if job.spec.intent is Intent.CANCEL:
            self._leadership.check()
            await engine.cancel(job.run_id)
            return Result(requeue_after=10)
        if job.status.preemption is not None and job.spec.restartable is not None:
            self._leadership.check()
            reach("preempt:before")
            await engine.cancel(job.run_id, grace=parse_duration(job.spec.restartable.grace))
            reach("preempt:after")
            return Result(requeue_after=10)
        if seen.state is RunState.UNKNOWN:
            return Result(requeue_after=5)
        self._leadership.check()
        await keep_held(engine, job, seen)
        status = lifecycle.going_on(job, seen)
        if status != job.status:
            # No event: where it was placed, how it ended and, in the status, when it began, are the story.
            await self._writer.status(record, status)
        return self._at_deadline(job)

    # After its end

    async def _finish(self, record: Record, job: Job, engine: Engine, seen: Observation) -> None:
        outputs = checkpoint = None
        stopped = lifecycle.goes_on(job, seen)
        restart = job.spec.restartable
        patterns = (restart.checkpoint if restart else []) if stopped else job.spec.outputs
        if (patterns or (job.spec.log_files and not stopped)) and seen.reason is not EndReason.START_FAILED:
            if job.status.phase is not JobPhase.FINISHING:
                record = await self._writer.status(record, lifecycle.finishing(job, seen))
                job = self._index.job(record)
            work = self._collect(job, engine, patterns)
            kept = await reporting_waits(
                engine, job.run_id, work, lambda far: self._notify(job, f"bringing back its outputs: {far}")
            )
            record = self._jobs.get(record.key) or record
            outputs, checkpoint = (None, kept if kept.count else None) if stopped else (kept, None)
        reader = self._engines.reader(job.status.site or "") if seen.reason is not EndReason.START_FAILED else None
        reported = await reported_values(reader, job.run_id)
        reach("finish:collected")
        status = lifecycle.ended(job, seen, outputs, self._now(), reported, checkpoint=checkpoint)
        await self._end(record, job, status)
        self._profiles.learn(job, status)
        self._leadership.check()
        await engine.tidy(job.run_id)

    async def _collect(self, job: Job, engine: Engine, patterns: Sequence[str]) -> Outputs:
        sink = TreeSink(self._blobs, job.namespace)
        try:
            if engine.capabilities.log_files:
                patterns = [*patterns, *log_patterns(job, numbers=engine.capabilities.numbers)]
            skipped = await engine.collect(job.run_id, patterns, sink) if patterns else []
            if not engine.capabilities.log_files:
                skipped += await keep_logs(self._engines.reader(job.status.site or ""), job.run_id, job, sink)
            digest, count, size = await sink.finish()
            skipped += sink.left_out
        except (NotFound, Invalid, EngineRefused) as error:
            # Asking again would not help: too many files, or the site has lost them. The job ends, and says so.
            skipped = [f"nothing was kept: {error.message}"]
            digest, count, size = await TreeSink(self._blobs, job.namespace).finish()
        return Outputs(tree=digest, count=count, bytes=size, skipped=skipped[:100] or None)

    async def _end(self, record: Record, job: Job, status: JobStatus) -> None:
        await self._writer.status(record, status)
        if status.phase.terminal:
            JOBS_ENDED.labels(status.phase.value).inc()
        text = status.message or f"{status.phase.value.lower()} at {status.site}"
        self._recorder.say(job, status.reason or status.phase.value, text, warning=status.phase is JobPhase.FAILED)

    async def _after_end(self, record: Record, job: Job) -> Result:
        self._leadership.check()
        if RUN_FINALIZER in (job.metadata.finalizers or ()):
            record = await self._correct(record, job)
            for attempt, site in _tries(job):
                if engine := self._engines.find(site or ""):
                    await engine.tidy(job.run(attempt))
        if job.spec.ttl_after_finished and job.status.finished_at:
            end = parse_timestamp(job.status.finished_at) + timedelta(
                seconds=parse_duration(job.spec.ttl_after_finished)
            )
            if (left := (end - self._now()).total_seconds()) > 0:
                return Result(requeue_after=min(left, 3600))
            self._leadership.check()
            await self._store.delete(record.key, uid=job.uid)
        return DONE

    async def _correct(self, record: Record, job: Job) -> Record:
        """Write down what an engine that corrects itself has learned since the end."""
        engine = self._engines.find(job.status.site or "")
        if engine is None or not engine.capabilities.corrects:
            return record
        seen = await engine.observe(job.run_id)
        if seen is None:
            return record
        if lifecycle.was_lost(job) and seen.state is RunState.RUNNING:
            await engine.cancel(job.run_id)  # it is over for everybody else
        status = lifecycle.corrected(job, seen)
        if status is not None and lifecycle.was_lost(job) and job.spec.outputs:
            status.outputs = await self._collect(job, engine, job.spec.outputs)
        return await self._writer.status(record, status) if status else record

    async def _remove(self, record: Record, job: Job) -> Result:
        """Deleted: end the run, remove what every attempt left, let the object go."""
        self._index.unready(job.uid)
        if RUN_FINALIZER not in (job.metadata.finalizers or ()):
            return DONE
        for attempt, site in _tries(job):
            if site is None or await self._site_is_gone(site):
                continue
            engine = self._engines.of(site)
            run_id = job.run(attempt)
            seen = await engine.observe(run_id)
            self._leadership.check()
            if seen is None:
                if not job.status.phase.terminal:
                    # Prepared and never started, or still on its way from a control plane that lost the lead. The bar
                    # stays: forgotten, it would bar nothing.
                    await engine.cancel(run_id, grace=0)
                    await engine.tidy(run_id)
                continue
            if seen.state is not RunState.ENDED:
                await engine.cancel(run_id)
                return Result(requeue_after=2)
            if attempt == job.status.attempt:
                record, job = await self._end_of_removed(record, job, seen)
            await engine.forget(run_id)
        if not self._usage.settled(record):
            return DONE  # it is looked at again when what it used is written down
        kept = [name for name in job.metadata.finalizers or () if name != RUN_FINALIZER]
        await self._writer.metadata(record, finalizers=kept)
        return DONE

    async def _end_of_removed(self, record: Record, job: Job, seen: Observation) -> tuple[Record, Job]:
        """Write down how the last run of a removed job ended and what it used, before the engine forgets it."""
        if job.status.phase.terminal:
            status = lifecycle.corrected(job, seen)
        else:
            status = lifecycle.ended(job, seen, None, self._now()) if seen.started_at else None
        if status is None:
            return record, job
        record = await self._writer.status(record, status)
        return record, self._index.job(record)

    async def _site_is_gone(self, site: str) -> bool:
        """Whether it was removed. One whose manifest cannot be used is not shown here, and is still there."""
        if self._engines.find(site) is not None or self._engines.expects(site):
            return False
        try:
            await self._store.get(Key(SITE.name, "", site))
        except NotFound:
            return True
        return False


def _unresolved(job: Job) -> bool:
    """Whether it still waits for another job."""
    known = {d.job for d in job.status.dependencies or () if d.satisfied}
    return any(dependency.job not in known for dependency in job.spec.dependencies)


def _tries(job: Job) -> list[tuple[int, str | None]]:
    """Every attempt that may have left something, and where."""
    past = [(earlier.attempt, earlier.site) for earlier in job.status.tries or ()]
    return [*past, (job.status.attempt, job.status.site)]


def declare(shared: Shared) -> Reconciler:
    """The part that brings jobs to their end. Their index decides which changes deserve a look, and whose."""
    jobs = JobReconciler(
        store=shared.store,
        jobs=shared.informer(JOB),
        tenants=shared.informer(TENANT),
        index=shared.index,
        engines=shared.engines,
        blobs=shared.blobs,
        leadership=shared.leadership,
        recorder=shared.recorder,
        profiles=shared.profiles,
        usage=shared.usage,
        images=shared.images,
        logins=shared.logins,
        now=shared.now,
    )
    return Reconciler(
        name="jobs",
        kind=JOB,
        reconcile=jobs.reconcile,
        workers=shared.workers,
        owns=(JOB,),  # elements of arrays
        observes=(Observes(JOB, shared.index.changed),),
        after=("sites",),
    )
