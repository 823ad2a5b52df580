"""What may be left to an engine's own queue: waiting for other jobs, being held; and reporting on files on their way.

A job that waits for others keeps its place in line only in a queue. So where the only site that it may go to has a
queue that knows dependencies, and what it waits for is in that queue already, it is sent there at once. The end of what
it waits for still decides: the engine only keeps it from beginning too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from isthmus._kit.quantities import format_bytes
from isthmus.engines.base import After, Engine, HoldingEngine, Observation, RunState, StagingEngine
from isthmus.errors import Conflict, NotFound
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Intent, Job, run_id_of
from isthmus.resources.kinds import JOB
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key

T = TypeVar("T")
TELL_EVERY = 2.0
"""Seconds between two remarks on how far files are."""


@dataclass(frozen=True, slots=True)
class Queued:
    """Where a job may wait, and for which runs."""

    site: str
    after: tuple[After, ...]


class EngineQueues:
    """Finds what may be left to engines."""

    def __init__(self, jobs: Informer, engines: EngineRegistry) -> None:
        self._jobs, self._engines = jobs, engines

    def queued(self, job: Job) -> Queued | None:
        """The queue in which a job may wait for all that it still waits for; None if it must wait here."""
        done = {d.job for d in job.status.dependencies or () if d.satisfied}
        bound = {d.job: d.uid for d in job.status.dependencies or ()}
        site, after = self.only_site(job), list[After]()
        engine = self._engines.find(site) if site else None
        if site is None or engine is None or not engine.capabilities.dependencies:
            return None
        for dependency in job.spec.dependencies:
            if dependency.job in done:
                continue
            if dependency.outputs_into is not None:
                return None  # what it is to be sent with is not there yet
            run_id = self._run_in_queue(job.namespace, dependency.job, site, bound.get(dependency.job))
            if run_id is None:
                return None
            after.append(After(run_id, dependency.condition))
        return Queued(site, tuple(after))

    def _run_in_queue(self, namespace: str, name: str, site: str, uid: str | None) -> str | None:
        record = self._jobs.get(Key(JOB.name, namespace, name))
        if record is None or (uid is not None and record.uid != uid):
            return None
        spec, status = record.obj["spec"], record.obj["status"]
        at_engine = status["phase"] in (JobPhase.QUEUED, JobPhase.RUNNING) and status.get("engineId")
        # One that may be tried again is another job of the engine's then: it would wait for the wrong one.
        again = (spec.get("retries") or {}).get("limit", 0) > 0
        if not at_engine or status.get("site") != site or spec.get("array") or again:
            return None
        return run_id_of(record.obj)

    def only_site(self, job: Job) -> str | None:
        """The one site that a job may go to, if there is but one."""
        names = job.spec.placement.sites or self._engines.names()
        if wanted := job.spec.engine_options.values():
            names = [name for name in names if (e := self._engines.find(name)) and e.capabilities.reads(wanted)]
        return names[0] if len(names) == 1 else None


async def keep_held(engine: Engine, job: Job, seen: Observation) -> None:
    """Have the engine hold or release a run that waits, as its owner wishes."""
    wanted = job.spec.intent is Intent.HOLD
    if seen.state is not RunState.QUEUED or seen.held is wanted or not isinstance(engine, HoldingEngine):
        return
    if wanted:
        await engine.hold(job.run_id)
    elif job.spec.intent is Intent.RUN:
        await engine.release(job.run_id)


async def reporting_waits(
    engine: Engine, run_id: str, work: Awaitable[T], notify: Callable[[str], Awaitable[None]]
) -> T:
    """Wait for work that moves files, and say now and then how far they are."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=TELL_EVERY))[0]:
            if isinstance(engine, StagingEngine) and (moved := engine.moved(run_id)):
                done, total = moved
                share = f" ({done * 100 // total}%)" if total else ""
                try:
                    await notify(f"{format_bytes(done)} of {format_bytes(total)}{share}")
                except (Conflict, NotFound):  # changed meanwhile: the next remark is made on what it is then
                    continue
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
