"""The comparison, without any platform: numbers in, verdicts out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.reconcilers.experiments import comparing
from isthmus.reconcilers.experiments.comparing import RunResult, compare, front_of, spread
from isthmus.reconcilers.experiments.plans import cells_of, job_of, order_of
from isthmus.resources.experiments import Experiment, ExperimentSpec
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.work.comparisons import CellResult, CellState, Spread

TEMPLATE = {"command": ["run", "--lr", "{lr}", "{unknown}", "{device}"]}


def spec_of(**fields: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate({"template": TEMPLATE, **fields})


def run(cell: int, repetition: int = 0, phase: JobPhase = JobPhase.SUCCEEDED, **known: Any) -> RunResult:
    return RunResult(cell, repetition, f"e-{cell}-{repetition}", phase, **known)


def test_a_spread_is_median_quartiles_and_ends() -> None:
    found = spread([4.0, 1.0, None, 2.0, 3.0])
    assert found == Spread(median=2.5, low=1.75, high=3.25, min=1.0, max=4.0, count=4)
    assert spread([7.0]) == Spread(median=7, low=7, high=7, min=7, max=7, count=1)
    assert spread([None]) is None


@given(st.lists(st.floats(), max_size=8))
def test_a_spread_is_made_of_numbers_whatever_was_reported(numbers: list[float]) -> None:
    """What is no number is null in JSON, and an experiment with it could not be read again."""
    found = spread(numbers)
    assert found is None or Spread.model_validate_json(found.model_dump_json()) == found


def test_numbers_come_from_runs_that_succeeded() -> None:
    spec = spec_of(repetitions=3)
    runs = [
        run(0, 0, seconds=2.0, joules=10.0, exit="0", energy_source="rapl"),
        run(0, 1, seconds=4.0, joules=20.0, exit="0", energy_source="estimated"),
        run(0, 2, JobPhase.FAILED, seconds=0.01, joules=0.1, exit="1", message="ended with exit code 1"),
    ]
    (cell,) = compare(spec, cells_of(spec), runs)
    assert cell.run_time is not None
    assert (cell.run_time.median, cell.run_time.count) == (3.0, 2)
    assert cell.energy_delay is not None
    assert cell.energy_delay.median == (2 * 10 + 4 * 20) / 2
    assert cell.energy_source == "estimated", "one estimate makes the whole an estimate"
    assert (cell.exits, cell.state, cell.message) == ({"0": 2, "1": 1}, CellState.FAILED, "ended with exit code 1")


@pytest.mark.parametrize(
    ("value", "check", "right"),
    [
        (0.905, {"tolerance": 0.01}, True),
        (0.88, {"tolerance": 0.01}, False),
        (0.88, {"tolerance": 0.05, "relative": True}, True),
        (0.91, {}, True),
        (None, {"tolerance": 9.0}, False),
    ],
)
def test_reported_values_are_held_to_the_reference(value: float | None, check: dict[str, Any], right: bool) -> None:
    spec = spec_of(matrix={"devices": ["cpu", "akida"]}, check={"values": [{"name": "accuracy", **check}]})
    own = {} if value is None else {"accuracy": value}
    cells = compare(spec, cells_of(spec), [run(0, values={"accuracy": 0.91}), run(1, values=own)])
    assert (cells[0].correct, cells[1].correct) == (True, right)
    assert bool(cells[1].deviations) is not right


def test_one_wrong_run_of_many_is_wrong() -> None:
    spec = spec_of(matrix={"devices": ["cpu", "akida"]}, repetitions=3, check={"values": [{"name": "x"}]})
    good = [run(0, n, values={"x": 1.0}) for n in range(3)]
    cells = compare(spec, cells_of(spec), [*good, *(run(1, n, values={"x": 1.0 if n else 1.5}) for n in range(3))])
    assert cells[1].correct is False
    assert "1.5 instead of 1" in cells[1].deviations[0]


def test_files_are_compared_by_their_digests_with_the_same_parameters() -> None:
    spec = spec_of(
        matrix={"devices": ["cpu", "akida"]},
        parameters=[{"name": "lr", "values": [1, 2]}],
        check={"device": "cpu", "files": ["out"]},
    )
    digests = ["a", "b", "a", "wrong"]  # cpu lr=1, cpu lr=2, akida lr=1, akida lr=2
    runs = [run(n, files={"out": digest}) for n, digest in enumerate(digests)]
    assert [cell.correct for cell in compare(spec, cells_of(spec), runs)] == [True, True, True, False]
    missing = compare(spec, cells_of(spec), [run(0, files={"out": "a"}), run(2, files={})])
    assert "left no such file" in missing[2].deviations[0]
    assert missing[3].correct is None, "what has not run is neither right nor wrong"


def test_without_a_result_of_the_reference_nothing_is_known() -> None:
    spec = spec_of(matrix={"devices": ["cpu", "akida"]}, check={"values": [{"name": "x"}]})
    cells = compare(spec, cells_of(spec), [run(0, phase=JobPhase.FAILED), run(1, values={"x": 1.0})])
    assert [cell.correct for cell in cells] == [None, None]


def test_the_best_cell_is_not_a_wrong_one() -> None:
    spec = spec_of(
        matrix={"devices": ["cpu", "akida"]},
        check={"values": [{"name": "x"}]},
        objective={"value": "runTime"},
    )
    runs = [run(0, seconds=9.0, values={"x": 1.0}), run(1, seconds=1.0, values={"x": 2.0})]
    assert comparing.best_of(spec, compare(spec, cells_of(spec), runs)) == 0
    most = spec_of(matrix={"devices": ["cpu", "akida"]}, objective={"value": "x", "goal": "Maximize"})
    assert comparing.best_of(most, compare(most, cells_of(most), runs)) == 1


def test_a_run_that_was_deleted_counts_and_is_remembered() -> None:
    spec = spec_of(repetitions=2)
    before = compare(spec, cells_of(spec), [run(0, 0), run(0, 1)])
    (cell,) = compare(spec, cells_of(spec), [run(0, 1)], before)
    assert (cell.runs.created, cell.runs.cancelled, set(cell.jobs)) == (2, 1, {"e-0-0", "e-0-1"})


point = st.tuples(st.floats(0.1, 100), st.floats(0.1, 100))


@given(st.lists(point, min_size=1, max_size=30))
def test_nothing_beats_the_front_and_it_beats_the_rest(points: list[tuple[float, float]]) -> None:
    def flat(value: float) -> Spread:
        return Spread(median=value, low=value, high=value, min=value, max=value, count=1)

    cells = [CellResult(index=n, run_time=flat(x), energy=flat(y)) for n, (x, y) in enumerate(points)]
    front = set(front_of(cells))
    assert front

    def beaten(index: int) -> bool:
        x, y = points[index]
        return any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)

    assert not any(beaten(index) for index in front)
    assert all(beaten(n) or any(points[n] == points[f] for f in front) for n in range(len(points)) if n not in front)


def experiment(**fields: Any) -> Experiment:
    meta = {"name": "e", "namespace": "t", "uid": "u-1"}
    return Experiment.model_validate({"metadata": meta, "spec": {"template": TEMPLATE, **fields}})


def test_a_run_is_a_job_with_its_point_in_words_and_variables() -> None:
    made = experiment(
        matrix={"devices": ["akida"], "sites": ["lab"]},
        parameters=[{"name": "lr", "values": [0.5]}],
        check={"files": ["out.bin"]},
    )
    (cell,) = cells_of(made.spec)
    job = job_of(made, made.spec.template.to_json(), cell, 0, cell.point or {})
    assert job["metadata"]["name"] == "e-0-0"
    assert job["spec"]["command"] == ["run", "--lr", "0.5", "{unknown}", "akida"]
    env = {variable["name"]: variable["value"] for variable in job["spec"]["env"]}
    assert env == {"PARAM_lr": "0.5", "PARAM_device": "akida", "PARAM_site": "lab", "PARAM_repetition": "0"}
    assert job["spec"]["resources"]["devices"] == [{"class": "akida", "count": 1}]
    assert (job["spec"]["placement"]["sites"], job["spec"]["outputs"]) == (["lab"], ["out.bin"])
    assert comparing.run_of_job(job) == RunResult(0, 0, "e-0-0", JobPhase.PENDING, {"lr": "0.5"}, run_id=".0")


def test_random_points_are_the_same_for_every_device_and_every_start() -> None:
    made = experiment(
        matrix={"devices": ["a", "b"]},
        parameters=[
            {"name": "lr", "range": {"min": 0.001, "max": 1, "log": True}},
            {"name": "n", "range": {"min": 1, "max": 9, "integer": True}},
            {"name": "kind", "values": ["x", "y"]},
        ],
        search={"method": "Random", "trials": 20, "seed": 3},
    )
    cells = cells_of(made.spec)
    assert cells == cells_of(made.spec)
    assert [c.point for c in cells[:20]] == [c.point for c in cells[20:]]
    for cell in cells:
        assert cell.point is not None
        assert 0.001 <= float(cell.point["lr"]) <= 1
        assert 1 <= int(cell.point["n"]) <= 9
    assert len({str(c.point) for c in cells}) == 20


def test_every_cell_once_before_any_cell_twice() -> None:
    spec = spec_of(matrix={"devices": ["a", "b"]}, repetitions=2)
    order = [(cell.index, repetition) for cell, repetition in order_of(spec, cells_of(spec))]
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1)]
