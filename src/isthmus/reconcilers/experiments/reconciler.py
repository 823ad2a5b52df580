"""Experiment: makes the runs, each once, compares them as they end, and stops when a rule says so.

A run is a Job with a name that follows from its cell and repetition, so that making it again finds it made. The point
that a search chose is written in the first job of its cell; whoever comes back after a crash reads it there. The
status is worked out anew from the jobs each time. A run that somebody deleted is not made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.crashpoints import reach
from isthmus._kit.durations import parse_duration
from isthmus.errors import AlreadyExists, Conflict, Invalid, Misconfigured, NotFound, Unavailable
from isthmus.reconcilers.placement.surveying import tariff_of
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.typed import Typed
from isthmus.reconcilers.writing import Writer
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.experiments import (
    PRUNED_ANNOTATION,
    Experiment,
    ExperimentStatus,
    SearchMethod,
    run_name,
)
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Intent, Job
from isthmus.resources.kinds import DEVICE_CLASS, EXPERIMENT, JOB, SITE
from isthmus.resources.sites import Site
from isthmus.resources.work.comparisons import CellResult
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Observes, Reconciler, Watches, both, exists, spec_changed
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.scheduling.demands import Room, demand_of
from isthmus.storage.base import Blobs
from isthmus.store.base import Key, Record, Store
from isthmus.telemetry.reports import numbers

from . import rules as rules
from . import searching
from .comparing import RunResult, compare, count
from .plans import Cell, Point, cells_of, job_of, order_of, seed_of
from .run_index import ExperimentIndex
from .steps import Steps

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

BATCH = 50
"""Runs made in one step."""
LOOK_SECONDS = 2.0
"""How often running trials are looked at, where they may be pruned."""
MAX_REPORT_FILE = 2**20
ROOMS = 20_000
"""Jobs whose resources are remembered, to price their runs."""
_OF_THE_EXPERIMENT = frozenset({"array", "intent", "ttlAfterFinished"})


class ExperimentReconciler:
    """Brings experiments to their end."""

    def __init__(
        self,
        *,
        store: Store,
        experiments: Informer,
        jobs: Informer,
        sites: Informer,
        classes: Informer,
        index: ExperimentIndex,
        steps: Steps,
        blobs: Blobs,
        leadership: Leadership,
        recorder: Recorder,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._store, self._experiments, self._jobs, self._sites = store, experiments, jobs, sites
        self._classes, self._typed = classes, Typed()
        self._rooms: dict[str, Room] = {}
        self._index, self._steps, self._blobs = index, steps, blobs
        self._leadership, self._recorder, self._now = leadership, recorder, now
        self._writer = Writer(store, leadership, experiments)
        self._job_writer = Writer(store, leadership, jobs)
        self._outputs = lru_cache(maxsize=20_000)(_Looked)

    async def reconcile(self, key: Key) -> Result:
        """One step for one experiment."""
        record = self._experiments.get(key)
        if record is None or "deletionTimestamp" in record.obj["metadata"]:
            return DONE  # its runs are its own, and go with it
        experiment = Experiment.model_validate(record.obj)
        if experiment.status.phase.terminal:
            return await self._after_end(record, experiment)
        cells = cells_of(experiment.spec)
        try:
            await self._make(experiment, record, cells)
            await self._prune(experiment, cells)
        except Misconfigured as error:
            return await self._fail(record, experiment, "Misconfigured", error.message)
        except _NameTaken as error:
            return await self._fail(record, experiment, "NameTaken", str(error))
        runs = await self._runs(experiment)
        status = self._seen(experiment, cells, runs)
        reach("experiment:seen")
        if status != experiment.status:
            record = await self._writer.status(record, status)
            self._say(experiment, status)
        if status.phase.terminal:
            self._steps.forget(run.run_id for run in runs)
            return await self._after_end(record, Experiment.model_validate(record.obj))
        if status.phase is status.phase.STOPPING:
            await self._cancel(experiment)
            return DONE
        waits = [rules.until(experiment, self._now())]
        waits += [LOOK_SECONDS] if experiment.spec.search.pruning and status.runs.active else []
        return Result(requeue_after=min((wait for wait in waits if wait is not None), default=None))

    def _seen(self, experiment: Experiment, cells: Sequence[Cell], runs: Sequence[RunResult]) -> ExperimentStatus:
        results = compare(experiment.spec, cells, runs, experiment.status.cells)
        deleted = sum(cell.runs.created for cell in results) - len(runs)
        total = len(cells) * experiment.spec.repetitions
        if experiment.spec.search.pruning:  # a pruned trial's other repetitions are not made
            total -= sum(c.runs.total - c.runs.created for c in results if c.state is c.state.PRUNED)
        totals = rules.Totals(
            count(runs, total, deleted),
            _sum(run.joules for run in runs),
            _sum(run.cost for run in runs),
        )
        stop = rules.stopped_by(experiment, results, totals, self._now())
        return rules.going_on(experiment, results, totals, stop, self._now())

    # Making runs

    async def _make(self, experiment: Experiment, record: Record, cells: Sequence[Cell]) -> None:
        """Make runs while there is room. Each that is made brings the experiment back, and so the next ones."""
        spec, status = experiment.spec, experiment.status
        if spec.intent is not Intent.RUN or status.phase is status.phase.STOPPING:
            return
        runs = {(run.cell, run.repetition): run for run in self._index.runs(experiment.uid)}
        results = {cell.index: cell for cell in status.cells}
        known = rules.Totals(status.runs, status.energy_joules, status.cost)
        if rules.stopped_by(experiment, status.cells, known, self._now()):
            return
        active = sum(not run.phase.terminal for run in runs.values())
        room = min((spec.parallel or rules.AHEAD) - active, BATCH)
        for cell, repetition in order_of(spec, list(cells)):
            if room <= 0:
                return
            name = run_name(experiment.name, cell.index, repetition)
            before = results.get(cell.index)
            if (cell.index, repetition) in runs or (before and name in before.jobs):
                continue
            first = runs.get((cell.index, 0))
            if first is not None and first.pruned:
                continue
            point = cell.point if cell.point is not None else await self._point(experiment, cells, cell, first, before)
            await self._create(experiment, record, cell, repetition, point)
            if repetition == 0 and (made := self._index.run(Key(JOB.name, experiment.namespace, name))):
                runs[cell.index, 0] = made
            room -= 1

    async def _point(
        self,
        experiment: Experiment,
        cells: Sequence[Cell],
        cell: Cell,
        first: RunResult | None,
        before: CellResult | None,
    ) -> Point:
        """The point of a cell that a search chooses: the one written down, or a new one."""
        if first is not None:
            return dict(first.point)
        if before is not None and before.jobs:
            return before.parameters
        trials = [trial for _, trial in await self._trials(experiment, cells, cell.combination)]
        return await asyncio.to_thread(searching.next_point, experiment.spec, trials, seed_of(experiment.spec, cell))

    async def _create(self, experiment: Experiment, record: Record, cell: Cell, repetition: int, point: Point) -> None:
        template = {k: v for k, v in record.obj["spec"]["template"].items() if k not in _OF_THE_EXPERIMENT}
        obj = job_of(experiment, template, cell, repetition, point)
        name = obj["metadata"]["name"]
        reach("experiment:before")
        try:
            await self._job_writer.create(obj)
        except AlreadyExists:
            there = self._jobs.get(Key(JOB.name, experiment.namespace, name))
            if there is None:
                raise Conflict(f"{name} was made a moment ago; the watch will say by whom") from None
            meta = there.obj["metadata"]
            if any(owner["uid"] == experiment.uid for owner in meta.get("ownerReferences") or ()):
                raise Conflict(f"{name} was made a moment ago") from None
            if "deletionTimestamp" in meta:
                raise Unavailable(f"another job called {name} is still being removed") from None
            raise _NameTaken(
                f"run {name} cannot be made: another job has that name; delete it or rename this"
            ) from None
        reach("experiment:after")

    # Searching

    async def _trials(
        self, experiment: Experiment, cells: Sequence[Cell], combination: int
    ) -> list[tuple[int, searching.Trial]]:
        """What is known of the trials of a combination, with the numbers of their cells."""
        spec = experiment.spec
        assert spec.objective is not None
        runs = await self._runs(experiment)
        results = compare(spec, cells, runs, experiment.status.cells)
        found = []
        for cell in cells:
            result = results[cell.index]
            own = [run for run in runs if run.cell == cell.index]
            if cell.combination != combination or not own:
                continue
            steps = await self._steps.of(own[0], spec.objective.value) if spec.search.pruning else {}
            state, value = _trial_state(result)
            found.append((cell.index, searching.Trial(own[0].point, state, value, steps)))
        return found

    async def _prune(self, experiment: Experiment, cells: Sequence[Cell]) -> None:
        """End trials that have fallen behind."""
        if experiment.spec.search.pruning is None or experiment.spec.search.method is not SearchMethod.TPE:
            return
        for combination in range(experiment.spec.combinations):
            trials = await self._trials(experiment, cells, combination)
            for number, trial in trials:
                if trial.state is not searching.TrialState.RUNNING or not trial.steps:
                    continue
                others = [other for index, other in trials if index != number]
                if await asyncio.to_thread(searching.hopeless, experiment.spec, others, trial):
                    await self._end_trial(experiment, number, max(trial.steps))

    async def _end_trial(self, experiment: Experiment, cell: int, step: int) -> None:
        for key in self._index.active(experiment.uid):
            job = self._jobs.get(key)
            if job is None or not (run := self._index.run(key)) or run.cell != cell:
                continue
            notes = {**(job.obj["metadata"].get("annotations") or {}), PRUNED_ANNOTATION: f"at step {step}"}
            await self._job_writer.change(job, {"annotations": notes}, {"intent": Intent.CANCEL.value})

    # Reading results

    async def _runs(self, experiment: Experiment) -> list[RunResult]:
        found = []
        for run in self._index.runs(experiment.uid):
            priced = replace(run, cost=self._cost(experiment, run))
            found.append(await self._with_outputs(experiment, priced))
        return found

    def _cost(self, experiment: Experiment, run: RunResult) -> float | None:
        """By the prices that placement goes by; None where the site has none for what the run had."""
        site = self._sites.get(Key(SITE.name, "", run.site or ""))
        job = self._jobs.get(Key(JOB.name, experiment.namespace, run.name))
        if run.seconds is None or site is None or job is None:
            return None
        classes = {found.key.name: self._typed.of(DeviceClass, found) for found in self._classes.all()}
        rate = tariff_of(self._typed.of(Site, site), classes).rate(self._room(job.uid, job))
        return rate * run.seconds if rate else None

    def _room(self, uid: str, job: Record) -> Room:
        """What a job has; read once."""
        if uid not in self._rooms:
            while len(self._rooms) >= ROOMS:
                del self._rooms[next(iter(self._rooms))]
            read = Job.model_validate(job.obj)
            self._rooms[uid] = demand_of(read.namespace, read.spec, read.status.chosen).room
        return self._rooms[uid]

    async def _with_outputs(self, experiment: Experiment, run: RunResult) -> RunResult:
        """The run with the digests of its files and the values of its report."""
        spec = experiment.spec
        wanted = tuple(spec.check.files if spec.check else ()) + ((spec.report.file,) if spec.report else ())
        if not wanted or run.tree is None or run.phase is not JobPhase.SUCCEEDED:
            return run
        looked = self._outputs(experiment.namespace, run.tree, wanted)
        if looked.files is None:
            looked.files, looked.values = await self._look(experiment, run.tree, wanted)
        return replace(run, files=looked.files, values={**looked.values, **run.values})

    async def _look(self, experiment: Experiment, tree: str, wanted: Sequence[str]) -> tuple[dict[str, str], Any]:
        namespace, report = experiment.namespace, experiment.spec.report
        try:
            there = {f.path: f for f in (await self._blobs.get_tree(namespace, tree)).files if f.digest}
        except (NotFound, Invalid):
            return {}, {}
        files = {path: there[path].digest or "" for path in wanted if path in there}
        values: dict[str, float] = {}
        if report and (file := there.get(report.file)) and file.digest and file.size <= MAX_REPORT_FILE:
            try:
                content = await asyncio.to_thread(self._blobs.path(namespace, file.digest).read_bytes)
                found = orjson.loads(content)
                values = numbers(found) if isinstance(found, dict) else {}
            except (NotFound, orjson.JSONDecodeError):
                values = {}
        return files, values

    # Ending

    async def _cancel(self, experiment: Experiment) -> None:
        for key in sorted(self._index.active(experiment.uid)):
            job = self._jobs.get(key)
            if job is not None and job.obj["spec"].get("intent") != Intent.CANCEL:
                await self._job_writer.spec(job, intent=Intent.CANCEL.value)

    async def _fail(self, record: Record, experiment: Experiment, reason: str, message: str) -> Result:
        await self._cancel(experiment)
        status = rules.failed(experiment, reason, message, self._now())
        await self._writer.status(record, status)
        self._say(experiment, status)
        return DONE

    async def _after_end(self, record: Record, experiment: Experiment) -> Result:
        if experiment.spec.ttl_after_finished and experiment.status.finished_at:
            end = parse_timestamp(experiment.status.finished_at)
            end += timedelta(seconds=parse_duration(experiment.spec.ttl_after_finished))
            if (left := (end - self._now()).total_seconds()) > 0:
                return Result(requeue_after=min(left, 3600))
            self._leadership.check()
            await self._store.delete(record.key, uid=experiment.uid)
        return DONE

    def _say(self, experiment: Experiment, status: ExperimentStatus) -> None:
        if status.phase is not experiment.status.phase:
            reported = status.message or f"{status.runs.succeeded} of {status.runs.total} runs succeeded"
            warning = status.phase is status.phase.FAILED
            self._recorder.say(experiment, status.reason or status.phase.value, reported, warning=warning)


class _NameTaken(Exception):
    """A run's name belongs to somebody else's job."""


class _Looked:
    """What was found in a run's outputs; a tree never changes, so it is looked at once."""

    def __init__(self, namespace: str, tree: str, wanted: tuple[str, ...]) -> None:
        self.files: dict[str, str] | None = None
        self.values: dict[str, float] = {}


def _trial_state(result: CellResult) -> tuple[searching.TrialState, float | None]:
    state = result.state
    if state is state.PRUNED:
        return searching.TrialState.PRUNED, None
    if state is state.RUNNING:
        return searching.TrialState.RUNNING, None
    if result.objective is not None:
        return searching.TrialState.COMPLETE, result.objective
    return searching.TrialState.FAIL, None


def _sum(numbers_: Any) -> float | None:
    known = [number for number in numbers_ if number is not None]
    return float(f"{sum(known):.9g}") if known else None


def declare(shared: Shared) -> Reconciler:
    """The part that brings experiments to their end. Their index decides which changes of their jobs deserve a look."""
    runs = ExperimentIndex(shared.look("experiments"))
    experiments = ExperimentReconciler(
        store=shared.store,
        experiments=shared.informer(EXPERIMENT),
        jobs=shared.informer(JOB),
        sites=shared.informer(SITE),
        classes=shared.informer(DEVICE_CLASS),
        index=runs,
        steps=Steps(shared.engines),
        blobs=shared.blobs,
        leadership=shared.leadership,
        recorder=shared.recorder,
        now=shared.now,
    )
    return Reconciler(
        name="experiments",
        kind=EXPERIMENT,
        reconcile=experiments.reconcile,
        workers=2,
        watches=(Watches(EXPERIMENT, when=both(exists, spec_changed)),),
        owns=(JOB,),
        # The index of jobs lets go of the decoded form of those that are over.
        observes=(Observes(JOB, runs.job_changed, before=("jobs",)),),
        after=("sites",),
    )
