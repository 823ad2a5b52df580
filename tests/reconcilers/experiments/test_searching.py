"""Optuna as a function: the same trials give the same answer, and good ones draw the search towards them."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

import pytest

from isthmus.errors import Misconfigured
from isthmus.reconcilers.experiments import searching
from isthmus.reconcilers.experiments.searching import Trial, TrialState, hopeless, next_point
from isthmus.resources.experiments import ExperimentSpec


def spec_of(**fields: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "template": {"command": ["true"]},
            "parameters": [
                {"name": "rate", "range": {"min": 0.001, "max": 10, "log": True}},
                {"name": "layers", "range": {"min": 1, "max": 8, "step": 3, "integer": True}},
                {"name": "share", "range": {"min": 0, "max": 1, "step": 0.3}},
                {"name": "kind", "values": ["a", "b"]},
            ],
            "search": {"method": "TPE", "trials": 9, "pruning": {"startupTrials": 2, "warmupSteps": 1}},
            "objective": {"value": "loss"},
            **fields,
        }
    )


def off(rate: str) -> float:
    return abs(math.log10(float(rate)))


def tried(number: int) -> Trial:
    point = next_point(spec_of(), [], number)
    return Trial(point, TrialState.COMPLETE, off(point["rate"]))


def test_points_lie_in_their_ranges_and_are_the_same_again() -> None:
    trials = [tried(n) for n in range(12)]
    trials.append(Trial(trials[0].point, TrialState.FAIL))
    trials.append(Trial(trials[1].point, TrialState.RUNNING, steps={0: 1.0}))
    for seed in range(5):
        point = next_point(spec_of(), trials, seed)
        assert point == next_point(spec_of(), trials, seed)
        assert 0.001 <= float(point["rate"]) <= 10
        assert point["layers"] in ("1", "4", "7")
        assert any(float(point["share"]) == pytest.approx(step) for step in (0, 0.3, 0.6, 0.9))
        assert point["kind"] in ("a", "b")


def test_the_search_goes_where_trials_were_good() -> None:
    trials = [tried(n) for n in range(40)]
    learnt = median(off(next_point(spec_of(), trials, seed)["rate"]) for seed in range(15))
    assert learnt < median(trial.value or 0 for trial in trials) / 2


@pytest.mark.parametrize("goal", ["Minimize", "Maximize"])
def test_a_trial_behind_the_median_is_hopeless(goal: str) -> None:
    spec = spec_of(objective={"value": "loss", "goal": goal})
    point = tried(0).point
    sign = 1 if goal == "Minimize" else -1
    others = [Trial(point, TrialState.COMPLETE, 1.0, {0: sign * 1.0, 1: sign * 1.0, 2: sign * 1.0}) for _ in range(3)]
    bad = {0: sign * 9.0, 1: sign * 9.0}
    assert hopeless(spec, others, Trial(point, TrialState.RUNNING, steps=bad))
    assert not hopeless(spec, others, Trial(point, TrialState.RUNNING, steps={0: sign * 0.5, 1: sign * 0.5}))
    assert not hopeless(spec, others, Trial(point, TrialState.RUNNING, steps={0: sign * 9.0})), "still warming up"
    assert not hopeless(spec, others[:1], Trial(point, TrialState.RUNNING, steps=bad)), "too few to compare with"


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(Misconfigured, match=r"isthmus\[learning\]"):
        searching.next_point(spec_of(), [], 0)
