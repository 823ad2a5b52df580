"""Experiments on a fake machine: limits, stop rules, searches, crashes, and everything made exactly once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.engines.base import Run, RunUsage
from isthmus.resources.experiments import Experiment
from isthmus.resources.frame.states import ExperimentPhase
from isthmus.resources.kinds import EXPERIMENT, JOB, SITE
from isthmus.store.base import Key
from isthmus.testing.fake_engine import Outcome

RunOnVirtualTime = Callable[[Coroutine[Any, Any, Any]], Any]
RATE = [{"name": "rate", "range": {"min": 0.001, "max": 1, "log": True}}]
TPE = {"parameters": RATE, "search": {"method": "TPE", "trials": 12}, "objective": {"value": "loss"}}


def reporting(run: Run) -> Outcome:
    """A run whose loss is lowest at a rate of 0.1."""
    loss = abs(float(run.env["PARAM_rate"]) - 0.1)
    return Outcome(after=5.0, log=f'isthmus: {{"loss": {loss}}}\n'.encode(), usage=RunUsage(5.0, 1.0, 100, 2.0))


async def begin(it: Any, name: str = "e", **spec: Any) -> None:
    await it.create(EXPERIMENT, name, {"template": {"command": ["true"]}, **spec})


async def look(it: Any, name: str = "e") -> Experiment:
    return Experiment.model_validate((await it.real.get(Key(EXPERIMENT.name, "default", name))).obj)


async def over(it: Any, name: str = "e", seconds: float = 3600) -> Experiment:
    async def there() -> Experiment | None:
        found = await look(it, name)
        return found if found.status.phase.terminal else None

    found: Experiment = await it.until(there, seconds=seconds)
    return found


async def change(it: Any, **fields: Any) -> None:
    record = await it.real.get(Key(EXPERIMENT.name, "default", "e"))
    await it.real.update(EXPERIMENT, {**record.obj, "spec": {**record.obj["spec"], **fields}})


def test_every_cell_runs_as_often_as_wanted_and_never_more_at_once(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = lambda run: Outcome(after=10.0, usage=RunUsage(float(run.env["PARAM_n"]), 1, 5, 3.0))
            await begin(it, parameters=[{"name": "n", "values": [1, 2, 3]}], repetitions=4, parallel=5)
            found = await over(it)
            assert found.status.phase is ExperimentPhase.SUCCEEDED
            assert [c.run_time.median for c in found.status.cells if c.run_time] == [1.0, 2.0, 3.0]
            assert (found.status.runs.succeeded, found.status.energy_joules, found.status.front) == (12, 36.0, [0])
            assert it.most_taken <= 5
            assert set(it.machine.starts.values()) == {1}
            assert len(it.machine.runs) == 12

    on_virtual_time(story())


@pytest.mark.parametrize("faults", [{}, {"conflicts": 0.2, "lost": 0.1}])
def test_stopped_at_any_moment_every_run_is_made_once(
    plane: Any, on_virtual_time: RunOnVirtualTime, faults: dict[str, float]
) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            for name, share in faults.items():
                setattr(it.store, name, share)
            it.machine.outcome = reporting
            await begin(it, **TPE, parallel=3, repetitions=2)
            for _ in range(25):
                await asyncio.sleep(1.7)
                await it.stop()
                it.start()
            found = await over(it)
            assert (found.status.phase, found.status.runs.succeeded) == ("Succeeded", 24)
            assert len(it.machine.runs) == 24
            assert set(it.machine.starts.values()) == {1}
            points = {}
            for job in await it.jobs():
                cell = (job.metadata.labels or {})["isthmus.dev/cell"]
                reported = (job.metadata.annotations or {})["isthmus.dev/point"]
                assert points.setdefault(cell, reported) == reported, "all repetitions of a trial have its point"
                assert json.loads(reported)["rate"] == next(e.value for e in job.spec.env if e.name == "PARAM_rate")

    on_virtual_time(story())


def test_the_same_search_tries_the_same_points(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = reporting
            spec: dict[str, Any] = {**TPE, "search": {"method": "TPE", "trials": 15, "seed": 5}, "parallel": 1}
            await begin(it, **spec)
            await begin(it, "again", **spec)
            one, two = (await over(it)).status, (await over(it, "again")).status
            assert [c.parameters for c in one.cells] == [c.parameters for c in two.cells]
            objectives = [c.objective or 9.0 for c in one.cells]
            assert one.best == objectives.index(min(objectives))

    on_virtual_time(story())


def test_trials_that_fall_behind_are_pruned(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    def outcome(run: Run) -> Outcome:
        # The first four are good and quick; the others report a bad value and would go on for ever.
        good = int(run.job.split("-")[1]) < 4
        loss = 1.0 if good else 50.0
        text = "".join(f'isthmus: {{"step": {n}, "loss": {loss}}}\n' for n in range(3))
        return Outcome(after=3.0 if good else None, log=text.encode())

    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = outcome
            search = {"method": "TPE", "trials": 6, "pruning": {"startupTrials": 3}}
            await begin(it, **{**TPE, "search": search}, parallel=2)
            found = await over(it, seconds=600)
            assert [c.state.value for c in found.status.cells] == ["Succeeded"] * 4 + ["Pruned"] * 2
            assert found.status.phase is ExperimentPhase.SUCCEEDED
            assert found.status.best in range(4)

    on_virtual_time(story())


@pytest.mark.parametrize(
    ("stop", "objective", "reason", "phase"),
    [
        ({"maxFailures": 2}, None, "TooManyFailures", "Failed"),
        ({"maxDuration": "25s"}, None, "MaxDuration", "Succeeded"),
        ({"maxEnergyJoules": 5.5}, None, "MaxEnergy", "Succeeded"),
        ({"maxCost": 0.01}, None, "MaxCost", "Succeeded"),
        ({"target": 3}, {"value": "score", "goal": "Maximize"}, "TargetReached", "Succeeded"),
    ],
)
def test_stop_rules(
    plane: Any, on_virtual_time: RunOnVirtualTime, stop: dict[str, Any], objective: Any, reason: str, phase: str
) -> None:
    def outcome(run: Run) -> Outcome:
        number = int(run.env["PARAM_n"])
        failed = "maxFailures" in stop and number % 2
        log = f'isthmus: {{"score": {number}}}\n'.encode()
        return Outcome(after=10.0, exit_code=1 if failed else 0, log=log, usage=RunUsage(10.0, 1, 5, 2.0))

    async def story() -> None:
        async with plane(cpus=50) as it:
            site = await it.real.get(Key("Site", "", "fake"))
            await it.real.update(SITE, {**site.obj, "spec": {**site.obj["spec"], "prices": {"cpu": 1.5}}})
            it.machine.outcome = outcome
            more = {"objective": objective} if objective else {}
            await begin(it, parameters=[{"name": "n", "values": list(range(40))}], parallel=1, stop=stop, **more)
            found = await over(it)
            assert (found.status.reason, found.status.phase) == (reason, phase)
            assert found.status.runs.created < 10
            assert found.status.runs.active == 0
            assert {c.state.value for c in found.status.cells[20:]} == {"Cancelled"}

    on_virtual_time(story())


def test_cancelled_it_ends_what_runs_and_keeps_what_was_measured(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = lambda run: Outcome(after=1.0 if run.job == "e-0-0" else None)
            await begin(it, parameters=[{"name": "n", "values": [1, 2, 3]}], parallel=2)
            await it.phase("e-2-0", "Running")
            await change(it, intent="Cancel")
            found = await over(it)
            assert (found.status.phase, found.status.runs.succeeded, found.status.runs.cancelled) == ("Cancelled", 1, 2)
            assert found.status.cells[0].run_time is not None

    on_virtual_time(story())


def test_held_it_makes_nothing_new(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = lambda _: Outcome(after=5.0)
            await begin(it, repetitions=3, parallel=1, intent="Hold")
            await asyncio.sleep(60)
            assert not await it.jobs()
            assert (await look(it)).status.reason == "Held"
            await change(it, intent="Run")
            assert (await over(it)).status.runs.succeeded == 3

    on_virtual_time(story())


def test_a_deleted_run_is_not_made_again_and_a_deleted_experiment_takes_its_runs_along(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            it.machine.outcome = lambda _: Outcome(after=20.0)
            await begin(it, repetitions=3)
            await it.phase("e-0-1", "Running")
            await asyncio.sleep(1)
            await it.delete("e-0-1")
            found = await over(it)
            assert (found.status.runs.succeeded, found.status.runs.cancelled) == (2, 1)
            assert await it.job("e-0-1") is None
            await it.real.delete(Key(EXPERIMENT.name, "default", "e"))
            await it.gone("e-0-0")
            await it.gone("e-0-2")

    on_virtual_time(story())


def test_a_name_that_is_taken_is_told(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=50) as it:
            await it.create(JOB, "e-0-0", {"command": ["true"]})
            await begin(it)
            found = await over(it)
            assert (found.status.phase, found.status.reason) == ("Failed", "NameTaken")

    on_virtual_time(story())
