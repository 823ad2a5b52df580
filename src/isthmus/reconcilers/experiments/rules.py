"""What is to be done about an experiment: when it stops, how it ends. Pure; the time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import parse_duration
from isthmus.resources.experiments import Experiment, ExperimentSpec, ExperimentStatus
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import EXPERIMENT_TRANSITIONS, ExperimentPhase, check_transition
from isthmus.resources.jobs import Intent
from isthmus.resources.work.comparisons import CellResult, CellState, RunCounts

from . import comparing

AHEAD = 100
"""Runs that may be active when the experiment sets no limit."""


@dataclass(frozen=True, slots=True)
class Totals:
    """All runs together."""

    counts: RunCounts
    joules: float | None
    cost: float | None


def stopped_by(
    experiment: Experiment, cells: Sequence[CellResult], totals: Totals, now: datetime
) -> tuple[str, str] | None:
    """Why it stops now, in a word and in a sentence; None: it goes on."""
    spec, stop = experiment.spec, experiment.spec.stop
    if spec.intent is Intent.CANCEL:
        return "Cancelled", "cancelled"
    if stop.max_failures is not None and totals.counts.failed >= stop.max_failures:
        return "TooManyFailures", f"{totals.counts.failed} runs failed; stop.maxFailures is {stop.max_failures}"
    began = experiment.status.started_at
    if stop.max_duration and began:
        lasted = (now - parse_timestamp(began)).total_seconds()
        if lasted >= parse_duration(stop.max_duration):
            return "MaxDuration", f"it has run for {stop.max_duration}"
    if stop.max_energy_joules is not None and (totals.joules or 0) >= stop.max_energy_joules:
        return "MaxEnergy", f"the runs have used {totals.joules:.6g} J; stop.maxEnergyJoules is reached"
    if stop.max_cost is not None and (totals.cost or 0) >= stop.max_cost:
        return "MaxCost", f"the runs have cost {totals.cost:.6g}; stop.maxCost is reached"
    if cell := comparing.reached(spec, cells):
        return "TargetReached", f"cell {cell.index} reached {cell.objective:.6g}; the target was {stop.target:.6g}"
    return None


def until(experiment: Experiment, now: datetime) -> float | None:
    """Seconds until a rule about time must be looked at."""
    stop, began = experiment.spec.stop, experiment.status.started_at
    if not stop.max_duration or not began:
        return None
    left = parse_duration(stop.max_duration) - (now - parse_timestamp(began)).total_seconds()
    return min(3600.0, max(0.05, left))


def going_on(
    experiment: Experiment,
    cells: list[CellResult],
    totals: Totals,
    stop: tuple[str, str] | None,
    now: datetime,
) -> ExperimentStatus:
    """The status that follows from what was seen."""
    old, counts = experiment.status, totals.counts
    phase, reason, message = old.phase, old.reason, old.message
    over = counts.active == 0 and counts.created >= counts.total
    if phase is ExperimentPhase.STOPPING:
        phase = _end(reason or "", counts) if counts.active == 0 else phase
    elif over:
        phase, reason, message = _complete(cells, counts)
    elif stop is not None:
        reason, message = stop
        phase = ExperimentPhase.STOPPING if counts.active else _end(reason, counts)
    elif experiment.spec.intent is Intent.HOLD:
        reason, message = "Held", "held: no new runs are made; set spec.intent to Run to go on"
    else:
        reason, message = None, None
        phase = ExperimentPhase.RUNNING if counts.created else phase
    return _reported(experiment, phase, reason, message, cells, totals, now)


def failed(experiment: Experiment, reason: str, message: str, now: datetime) -> ExperimentStatus:
    """It cannot be carried out."""
    old = experiment.status
    totals = Totals(old.runs, old.energy_joules, old.cost)
    return _reported(experiment, ExperimentPhase.FAILED, reason, message, old.cells, totals, now)


def _end(reason: str, counts: RunCounts) -> ExperimentPhase:
    if reason == "Cancelled":
        return ExperimentPhase.CANCELLED
    if reason == "TooManyFailures" or not counts.succeeded:
        return ExperimentPhase.FAILED
    return ExperimentPhase.SUCCEEDED


def _complete(cells: Sequence[CellResult], counts: RunCounts) -> tuple[ExperimentPhase, str | None, str | None]:
    if not counts.succeeded:
        reported = next((cell.message for cell in cells if cell.message), "no run succeeded")
        return ExperimentPhase.FAILED, "RunsFailed", f"no run succeeded; the first says: {reported}"
    if counts.failed:
        return ExperimentPhase.SUCCEEDED, "RunsFailed", f"{counts.failed} of {counts.total} runs failed"
    return ExperimentPhase.SUCCEEDED, None, None


def _reported(
    experiment: Experiment,
    phase: ExperimentPhase,
    reason: str | None,
    message: str | None,
    cells: list[CellResult],
    totals: Totals,
    now: datetime,
) -> ExperimentStatus:
    old, moment = experiment.status, timestamp(now)
    check_transition(EXPERIMENT_TRANSITIONS, old.phase, phase)
    status = old.model_copy(
        update={
            "phase": phase,
            "reason": reason,
            "message": message,
            "cells": cells,
            "runs": totals.counts,
            "energy_joules": totals.joules,
            "cost": totals.cost,
            "best": comparing.best_of(experiment.spec, cells),
            "front": comparing.front_of(cells),
            "reference": _reference(experiment.spec, cells),
            "observed_generation": experiment.metadata.generation,
        }
    )
    if phase is not ExperimentPhase.PENDING and status.started_at is None:
        status.started_at = moment
    if phase.terminal:
        status.finished_at = status.finished_at or moment
        for cell in status.cells:
            if cell.state is CellState.WAITING:
                cell.state = CellState.CANCELLED
    for condition in _conditions(status):
        status.conditions = set_condition(status.conditions, condition, moment)
    return status


def _reference(spec: ExperimentSpec, cells: Sequence[CellResult]) -> int | None:
    if spec.check is None:
        return None
    return next((c.index for c in cells if comparing.is_reference(spec, spec.check, c)), None)


def _conditions(status: ExperimentStatus) -> list[Condition]:
    """`Complete` (or `Failed`) at the end, as `kubectl wait` reads them; `Correct` once something was checked."""
    found = []
    if status.phase.terminal:
        mark = "Complete" if status.phase is ExperimentPhase.SUCCEEDED else "Failed"
        reported = {"reason": status.reason or status.phase.value, "message": status.message or ""}
        found += [Condition(type=name, status=ConditionStatus.TRUE, **reported) for name in ("Finished", mark)]
    wrong = [cell.index for cell in status.cells if cell.correct is False]
    if wrong:
        message = f"cells {', '.join(map(str, wrong[:20]))} differ from the reference"
        found.append(Condition(type="Correct", status=ConditionStatus.FALSE, reason="Deviates", message=message))
    elif any(cell.correct for cell in status.cells):
        found.append(Condition(type="Correct", status=ConditionStatus.TRUE, reason="Agrees"))
    return found
