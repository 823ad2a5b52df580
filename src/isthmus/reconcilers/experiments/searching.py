"""Optuna's TPE and pruners, used as functions: trials in, the next point (or a verdict) out.

No study is kept anywhere. The trials are given to a fresh one each time, from the jobs themselves; so nothing is lost
with the process, and the same trials with the same seed give the same point. Optuna is loaded when first needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from isthmus.errors import Misconfigured
from isthmus.resources.experiments import ExperimentSpec, Goal, Parameter, PruningMethod

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from .plans import Point

STARTUP = 10
"""Trials drawn at random before there is enough to learn from (Optuna's own default)."""


class TrialState(StrEnum):
    """What became of a trial."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Trial:
    """One point that was tried."""

    point: Mapping[str, str]
    state: TrialState
    value: float | None = None
    steps: Mapping[int, float] = field(default_factory=dict)


def next_point(spec: ExperimentSpec, trials: Sequence[Trial], seed: int) -> Point:
    """The point that TPE would try now. Takes a moment: call it in a thread."""
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=STARTUP)
    study = _study(spec, trials, sampler=sampler)
    chosen = study.ask(_space(spec.parameters)).params
    return {name: value if isinstance(value, str) else repr(value) for name, value in chosen.items()}


def hopeless(spec: ExperimentSpec, trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether a running trial has fallen behind the others. `trial` is not among `trials`."""
    wanted = spec.search.pruning
    if wanted is None or not trial.steps or max(trial.steps) < wanted.warmup_steps:
        return False
    pruners = _optuna().pruners
    if wanted.method is PruningMethod.MEDIAN:
        pruner = pruners.MedianPruner(n_startup_trials=wanted.startup_trials, n_warmup_steps=wanted.warmup_steps)
    else:
        if sum(other.state is TrialState.COMPLETE for other in trials) < wanted.startup_trials:
            return False
        pruner = pruners.SuccessiveHalvingPruner()
    study = _study(spec, [*trials, trial], pruner=pruner)
    return bool(pruner.prune(study, study.trials[-1]))


def _study(spec: ExperimentSpec, trials: Sequence[Trial], **parts: Any) -> Study:
    optuna = _optuna()
    assert spec.objective is not None
    direction = "minimize" if spec.objective.goal is Goal.MINIMIZE else "maximize"
    study: Study = optuna.create_study(direction=direction, **parts)
    space = _space(spec.parameters)
    for trial in trials:
        study.add_trial(_frozen(trial, space))
    return study


def _frozen(trial: Trial, space: Mapping[str, BaseDistribution]) -> FrozenTrial:
    optuna = _optuna()
    params = {name: _read(text, space[name]) for name, text in trial.point.items() if name in space}
    steps = dict(trial.steps)
    found: FrozenTrial = optuna.trial.create_trial(
        state=getattr(optuna.trial.TrialState, trial.state.value),
        value=trial.value if trial.state is TrialState.COMPLETE else None,
        params=params,
        distributions={name: space[name] for name in params},
        intermediate_values=steps,
    )
    return found


def _read(text: str, distribution: BaseDistribution) -> str | int | float:
    kinds = _optuna().distributions
    if isinstance(distribution, kinds.IntDistribution):
        return int(text)
    return float(text) if isinstance(distribution, kinds.FloatDistribution) else text


def _space(parameters: Sequence[Parameter]) -> dict[str, BaseDistribution]:
    kinds = _optuna().distributions
    found: dict[str, BaseDistribution] = {}
    for parameter in parameters:
        span = parameter.range
        if span is None:
            found[parameter.name] = kinds.CategoricalDistribution(list(parameter.values or ()))
        elif span.integer:
            step = 1 if span.step is None else int(span.step)
            low, high = int(span.min), int(span.max)
            found[parameter.name] = kinds.IntDistribution(low, high - (high - low) % step, log=span.log, step=step)
        else:
            high_end = span.max if span.step is None else span.stepped(span.steps)
            found[parameter.name] = kinds.FloatDistribution(span.min, high_end, log=span.log, step=span.step)
    return found


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise Misconfigured(
            "the search method TPE needs Optuna; install isthmus[learning] where the control plane runs, "
            "or use the method Random"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
