"""The comparison: from what single runs were measured to be, to what an experiment's status says. Pure.

Numbers of a cell come from its runs that succeeded: a run that failed early is no fast run. A cell is checked against
the reference cell with the same parameters; it is neither right nor wrong as long as one of the two has no result.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.resources.experiments import (
    CELL_LABEL,
    POINT_ANNOTATION,
    PRUNED_ANNOTATION,
    REPETITION_LABEL,
    Check,
    ExperimentSpec,
    Goal,
    ValueCheck,
)
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import run_id_of
from isthmus.resources.work.comparisons import LARGEST, CellResult, CellState, RunCounts, Spread

from .plans import Cell, Point

_MEASURED: Mapping[str, Callable[[CellResult], Spread | None]] = {
    "runTime": lambda cell: cell.run_time,
    "energy": lambda cell: cell.energy,
    "energyDelay": lambda cell: cell.energy_delay,
    "peakMemory": lambda cell: cell.peak_memory,
    "cost": lambda cell: cell.cost,
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What is known of one run."""

    cell: int
    repetition: int
    name: str
    phase: JobPhase
    point: Point = field(default_factory=dict)
    pruned: bool = False
    site: str | None = None
    message: str | None = None
    seconds: float | None = None
    joules: float | None = None
    energy_source: str | None = None
    peak_bytes: float | None = None
    cost: float | None = None
    exit: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    tree: str | None = None
    files: Mapping[str, str] | None = None
    """Digests of the outputs that matter, by path; None: not looked at."""
    run_id: str = ""


def run_of_job(obj: Mapping[str, Any]) -> RunResult | None:
    """The run that a job of an experiment is; None if its marks make no sense."""
    meta, status = obj["metadata"], obj["status"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    try:
        cell, repetition = int(labels[CELL_LABEL]), int(labels[REPETITION_LABEL])
        point = json.loads(notes[POINT_ANNOTATION])
    except (KeyError, ValueError):
        return None
    usage = status.get("usage") or {}
    ended = status.get("signal") or status.get("exitCode")
    return RunResult(
        cell=cell,
        repetition=repetition,
        name=meta["name"],
        phase=JobPhase(status["phase"]),
        point={str(name): str(value) for name, value in point.items()} if isinstance(point, dict) else {},
        pruned=PRUNED_ANNOTATION in notes and status["phase"] == JobPhase.CANCELLED,  # it may have ended before that
        site=status.get("site"),
        message=status.get("message"),
        seconds=usage.get("elapsedSeconds"),
        joules=usage.get("energyJoules"),
        energy_source=usage.get("energySource"),
        peak_bytes=usage.get("peakMemoryBytes"),
        exit=None if ended is None else str(ended),
        values=status.get("reported") or {},
        tree=(status.get("outputs") or {}).get("tree"),
        run_id=run_id_of(obj),
    )


def spread(numbers: Iterable[float | None]) -> Spread | None:
    """Median, quartiles and ends; None of nothing. What cannot be counted with does not count."""
    known = sorted(number for number in numbers if number is not None and abs(number) <= LARGEST)
    if not known:
        return None
    if len(known) > 1:
        low, _, high = statistics.quantiles(known, n=4, method="inclusive")
    else:
        low = high = known[0]
    return Spread(
        median=statistics.median(known),
        low=low,
        high=high,
        min=known[0],
        max=known[-1],
        count=len(known),
    )


def count(runs: Iterable[RunResult], total: int, deleted: int = 0) -> RunCounts:
    """How many runs are in which state. Runs that somebody deleted count as cancelled."""
    phases = Counter(run.phase for run in runs)
    return RunCounts(
        total=total,
        created=sum(phases.values()) + deleted,
        active=sum(number for phase, number in phases.items() if not phase.terminal),
        succeeded=phases[JobPhase.SUCCEEDED],
        failed=phases[JobPhase.FAILED],
        cancelled=phases[JobPhase.CANCELLED] + deleted,
    )


def compare(
    spec: ExperimentSpec, cells: Sequence[Cell], runs: Iterable[RunResult], before: Sequence[CellResult] = ()
) -> list[CellResult]:
    """The comparison. `before` is the last one: runs that it names and that are gone were deleted."""
    by_cell: dict[int, list[RunResult]] = {}
    for run in runs:
        by_cell.setdefault(run.cell, []).append(run)
    earlier = {cell.index: cell for cell in before}
    found = []
    for cell in cells:
        own = sorted(by_cell.get(cell.index, ()), key=lambda run: run.repetition)
        found.append(_measured(spec, cell, own, earlier.get(cell.index)))
    if spec.check is not None:
        _check_all(spec, spec.check, cells, found, by_cell)
    return found


def _measured(spec: ExperimentSpec, cell: Cell, runs: Sequence[RunResult], before: CellResult | None) -> CellResult:
    good = [run for run in runs if run.phase is JobPhase.SUCCEEDED]
    known = {run.name for run in runs}
    gone = [name for name in (before.jobs if before else ()) if name not in known]
    point = cell.point if cell.point is not None else runs[0].point if runs else before.parameters if before else {}
    sources = {run.energy_source for run in good if run.energy_source}
    names = {name for run in good for name in run.values}
    result = CellResult(
        index=cell.index,
        device=cell.device,
        site=cell.site,
        image=cell.image,
        parameters=point,
        runs=count(runs, spec.repetitions, len(gone)),
        jobs=[*(run.name for run in runs), *gone],
        run_time=spread(run.seconds for run in good),
        energy=spread(run.joules for run in good),
        energy_source="estimated" if "estimated" in sources else next(iter(sorted(sources)), None),
        energy_delay=spread(
            run.joules * run.seconds if run.joules is not None and run.seconds is not None else None for run in good
        ),
        peak_memory=spread(run.peak_bytes for run in good),
        cost=spread(run.cost for run in good),
        exits=dict(sorted(Counter(run.exit for run in runs if run.exit is not None).items())),
        values={name: found for name in sorted(names) if (found := spread(run.values.get(name) for run in good))},
    )
    result.state, result.message = _state(result.runs, runs)
    if spec.objective is not None and (better := objective_of(result, spec.objective.value)) is not None:
        result.objective = better
    return result


def _state(counts: RunCounts, runs: Sequence[RunResult]) -> tuple[CellState, str | None]:
    if any(run.pruned for run in runs):
        return CellState.PRUNED, "ended early: it fell behind other trials"
    reported = next((run.message for run in runs if run.phase is JobPhase.FAILED and run.message), None)
    if counts.active or (counts.created and counts.created < counts.total):
        waiting = [run.message for run in runs if run.phase is JobPhase.PENDING and run.message]
        return CellState.RUNNING, reported or next(iter(waiting), None)
    if not counts.created:
        return CellState.WAITING, None
    if counts.failed:
        return CellState.FAILED, reported
    if counts.cancelled:
        return (CellState.SUCCEEDED if counts.succeeded else CellState.CANCELLED), None
    return CellState.SUCCEEDED, None


def objective_of(cell: CellResult, name: str) -> float | None:
    """A cell's median of what is measured or reported under a name."""
    found = _MEASURED[name](cell) if name in _MEASURED else cell.values.get(name)
    return found.median if found else None


# Correctness


def _check_all(
    spec: ExperimentSpec,
    check: Check,
    cells: Sequence[Cell],
    results: list[CellResult],
    runs: Mapping[int, Sequence[RunResult]],
) -> None:
    references = {
        _same(results[cell.index]): results[cell.index] for cell in reversed(cells) if is_reference(spec, check, cell)
    }
    for result in results:
        reference = references.get(_same(result))
        if result.run_time is None and not result.runs.succeeded:
            continue
        if reference is None or not reference.runs.succeeded:
            continue
        found = list(_deviations(check, result, reference, runs))
        result.correct, result.deviations = not found, found[:16]


def _same(result: CellResult) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(result.parameters.items()))


def is_reference(spec: ExperimentSpec, check: Check, cell: Cell | CellResult) -> bool:
    """Whether a cell is in the combination that others are checked against."""
    matrix = spec.matrix
    wanted = (
        check.device or next(iter(matrix.devices), None),
        check.site or next(iter(matrix.sites), None),
        check.image or next(iter(matrix.images), None),
    )
    return (cell.device, cell.site, cell.image) == wanted


def _deviations(
    check: Check, result: CellResult, reference: CellResult, runs: Mapping[int, Sequence[RunResult]]
) -> Iterable[str]:
    for value in check.values:
        if reported := _value_off(value, result.values.get(value.name), reference.values.get(value.name)):
            yield reported
    good = [run for run in runs.get(result.index, ()) if run.phase is JobPhase.SUCCEEDED]
    right = next(
        (r for r in runs.get(reference.index, ()) if r.phase is JobPhase.SUCCEEDED and r.files is not None), None
    )
    for path in check.files if right else ():
        assert right is not None
        wanted = (right.files or {}).get(path)
        if wanted is None:
            yield f"{path}: the reference run {right.name} left no such file"
            continue
        for run in good:
            if run.files is None:
                continue
            if (there := run.files.get(path)) is None:
                yield f"{path}: run {run.name} left no such file"
            elif there != wanted:
                yield f"{path}: run {run.name} differs from {right.name}"


def _value_off(check: ValueCheck, own: Spread | None, right: Spread | None) -> str | None:
    if right is None:
        return f"{check.name}: the reference reports no such value"
    if own is None:
        return f"{check.name}: was not reported"
    allowed = check.tolerance * abs(right.median) if check.relative else check.tolerance
    # Every run counts, not the typical one: a board that is wrong now and then is wrong.
    off = max(abs(own.min - right.median), abs(own.max - right.median))
    if off <= allowed:
        return None
    worst = own.min if abs(own.min - right.median) >= abs(own.max - right.median) else own.max
    return f"{check.name}: {worst:.6g} instead of {right.median:.6g}, off by {off:.3g} where {allowed:.3g} is allowed"


# Over all cells


def best_of(spec: ExperimentSpec, cells: Iterable[CellResult]) -> int | None:
    """The cell with the best objective; one that is wrong is not best, however fast."""
    if spec.objective is None:
        return None
    able = [c for c in cells if c.objective is not None and c.correct is not False and c.state is not CellState.PRUNED]
    sign = 1 if spec.objective.goal is Goal.MINIMIZE else -1
    ranked = min(able, key=lambda c: (sign * (c.objective or 0.0), c.index), default=None)
    return ranked.index if ranked else None


def front_of(cells: Iterable[CellResult]) -> list[int]:
    """The cells that no other beats in both time and energy, by time."""
    able = [c for c in cells if c.run_time and c.energy and c.correct is not False]
    ordered = sorted(able, key=lambda c: (_x(c), _y(c), c.index))
    found: list[int] = []
    lowest = float("inf")
    for cell in ordered:
        if _y(cell) < lowest:
            lowest = _y(cell)
            found.append(cell.index)
    return found


def _x(cell: CellResult) -> float:
    return cell.run_time.median if cell.run_time else float("inf")


def _y(cell: CellResult) -> float:
    return cell.energy.median if cell.energy else float("inf")


def reached(spec: ExperimentSpec, cells: Iterable[CellResult]) -> CellResult | None:
    """A finished cell whose objective is as good as the target."""
    if spec.objective is None or spec.stop.target is None:
        return None
    for cell in cells:
        if cell.objective is None or cell.correct is False or cell.runs.succeeded < cell.runs.total:
            continue
        if (
            cell.objective <= spec.stop.target
            if spec.objective.goal is Goal.MINIMIZE
            else cell.objective >= spec.stop.target
        ):
            return cell
    return None
