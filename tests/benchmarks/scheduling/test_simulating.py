"""What the simulator adds up, checked by hand."""

from __future__ import annotations

import pytest

from benchmarks.scheduling.methods import method
from benchmarks.scheduling.simulating import Instance, simulate
from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.models import DeadlineJob, MachinePlan, MachineShare, MachineType, Overheads, Snapshot
from tests.scheduling.deadlines.examples import CATALOGUE, FOUR, HOUR, ONE, TWO, job, profile


def instance(*jobs: DeadlineJob, machines: int = 1, overheads: Overheads | None = None) -> Instance:
    return Instance(tuple(jobs), tuple(f"n{i}" for i in range(machines)), CATALOGUE, overheads or Overheads())


def always(kind: MachineType, devices: int, machine: str = "n0") -> object:
    """Everybody on one machine."""

    def decide(snapshot: Snapshot) -> MachinePlan:
        return MachinePlan({machine: kind}, {s.job.name: MachineShare(machine, devices) for s in snapshot.jobs})

    return decide


def test_one_job_pays_its_machine() -> None:
    outcome = simulate(instance(job("j", 10)), always(ONE, 1))  # type: ignore[arg-type]
    assert (outcome.cost, outcome.end, outcome.decisions) == (pytest.approx(4.0), 4 * HOUR, 1)
    assert outcome.reconfigurations == 1  # the machine was started
    assert [(s.job, s.kind, s.devices, s.start, s.end) for s in outcome.stints] == [("j", "one", 1, 0.0, 4 * HOUR)]


def test_idle_devices_of_a_running_machine_cost() -> None:
    assert simulate(instance(job("j", 10)), always(FOUR, 1)).cost == pytest.approx(16.0)  # type: ignore[arg-type]


def test_jobs_share_a_machine() -> None:
    assert simulate(instance(job("a", 10), job("b", 10)), always(TWO, 1)).cost == pytest.approx(8.0)  # type: ignore[arg-type]


def test_lateness_costs_its_weight() -> None:
    outcome = simulate(instance(job("j", 3, weight=0.02)), always(ONE, 1))  # type: ignore[arg-type]
    assert outcome.lateness == pytest.approx(HOUR)
    assert outcome.lateness_cost == pytest.approx(72.0)


def test_changes_cost_time() -> None:
    """A machine starts in 60 s. At the second arrival the first job is resized: restored in 30 s, set back by 36 s."""

    def decide(snapshot: Snapshot) -> MachinePlan:
        if len(snapshot.jobs) == 1:
            name = snapshot.jobs[0].job.name
            return MachinePlan({"n0": TWO}, {name: MachineShare("n0", 2)})
        return MachinePlan({"n0": TWO}, {s.job.name: MachineShare("n0", 1) for s in snapshot.jobs})

    jobs = (job("a", 10, a1=4, a2=2), job("b", 10, submitted=1, a1=1))
    outcome = simulate(instance(*jobs, overheads=Overheads(60, 30, 36)), decide)
    # a: (3600 - 60) of 7200 s done, 36 s of them lost, then one device from 3630 s on, until b ends.
    left = 1 - (3540 - 36) / 7200
    assert outcome.stints[1].start == HOUR
    after_b = left - (2 * HOUR - 3630) / (4 * HOUR)
    assert outcome.end == pytest.approx(2 * HOUR + 30 + (after_b + 36 / (4 * HOUR)) * 2 * HOUR)
    assert outcome.reconfigurations == 3  # started, and resized twice


def test_a_method_that_lets_everybody_wait_is_refused() -> None:
    with pytest.raises(Invalid, match="nothing would ever happen"):
        simulate(instance(job("j", 10)), lambda snapshot: MachinePlan())


def test_a_method_that_gives_a_device_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="2 devices of n0, which has 1"):
        simulate(instance(job("a", 10), job("b", 10)), always(ONE, 1))  # type: ignore[arg-type]


def test_a_method_that_uses_what_is_not_there_is_refused() -> None:
    with pytest.raises(Invalid, match="elsewhere, which is not among the machines"):
        simulate(instance(job("a", 10)), always(ONE, 1, "elsewhere"))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="no profile"):
        simulate(instance(job("a", 10, a1=4)), always(TWO, 2))  # type: ignore[arg-type]


def test_a_job_that_nothing_can_run_is_left_out_and_the_rest_goes_on() -> None:
    outcome = simulate(instance(job("good", 10), job("odd", 10, z1=1)), method("isthmus"))
    assert outcome.cost == pytest.approx(4.0)
    assert "z" in outcome.rejected["odd"]
    assert "there are: a" in outcome.rejected["odd"]


def test_two_jobs_of_one_name_and_no_machine_are_refused() -> None:
    with pytest.raises(Invalid, match="same name"):
        simulate(instance(job("a", 1), job("a", 2)), method("fifo"))
    with pytest.raises(Invalid, match="no machines"):
        simulate(instance(job("a", 1), machines=0), method("fifo"))


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(Invalid, match="deadline"):
        DeadlineJob("j", 0, float("nan"), 1, profile(a1=1))
    with pytest.raises(Invalid, match="weight"):
        DeadlineJob("j", 0, 1, -1, profile(a1=1))
    with pytest.raises(Invalid, match="empty"):
        profile()
    with pytest.raises(Invalid, match="positive"):
        profile(a1=0)
    with pytest.raises(Invalid, match="devices"):
        MachineType("m", "a", 0, 1)
    with pytest.raises(Invalid, match="at least 0"):
        Overheads(start=-1)
