"""What is left to Slurm's own queue: holding, dependencies between jobs of one site, estimates of the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import After, Run
from isthmus.engines.slurm.cluster.waits import Wait, estimate
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob, SlurmNode, SlurmPartition
from isthmus.engines.slurm.observing.observations import start_between
from isthmus.engines.slurm.settings import RestSettings
from isthmus.errors import SiteUnavailable
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.resources.jobs import DependencyCondition, SlurmOptions
from isthmus.testing.engines import new_run_id, until, wait_ended, whole_log

from .conftest import MakeEngine, settings_of
from .test_exactly_once import run_of

real = pytest.mark.real
pytestmark = pytest.mark.anyio
OK = DependencyCondition.SUCCEEDED


@pytest.fixture(params=["Command", "REST"])
async def engine(request: pytest.FixtureRequest, lab: SlurmLab, make_engine: MakeEngine) -> SlurmEngine:
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    return await make_engine(settings_of(lab), transport=request.param, rest=rest)


async def sees(engine: SlurmEngine, run_id: str, what: Callable[[Any], bool], reported: str) -> None:
    async def look() -> bool:
        seen = await engine.observe(run_id)
        return seen is not None and what(seen)

    await until(look, reported)


def open_gate(engine: SlurmEngine, run_id: str) -> None:
    (Path(engine._files.folder(run_id)) / "work" / "go").touch()


GATE = "until test -e go; do sleep 0.1; done"


@real
async def test_a_waiting_run_is_held_and_released_by_slurm(lab: SlurmLab, engine: SlurmEngine) -> None:
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        run = run_of("echo went")
        await engine.submit(run)
        await engine.hold(run.id)
        await sees(engine, run.id, lambda seen: seen.held and seen.message == "held", "the run to be held")
    finally:
        lab.call("scontrol", "update", "partitionname=all", "state=up")
    await engine.release(run.id)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    await engine.hold(run.id)  # what is over is left alone
    await engine.release(run.id)


@real
async def test_what_its_owner_holds_on_the_cluster_is_not_ours_to_release(
    lab: SlurmLab, make_engine: MakeEngine
) -> None:
    engine = await make_engine(settings_of(lab))
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        run = run_of("echo went")
        await engine.submit(run)
        job = str(engine._active[run.id].record.job)
        lab.call("scontrol", "uhold", job)
        await sees(engine, run.id, lambda seen: seen.message == "held", "the hold to be seen")
        await engine.release(run.id)
        assert "JobHeldUser" in lab.call("squeue", "-h", "-j", job, "-o", "%r")
    finally:
        lab.call("scontrol", "update", "partitionname=all", "state=up")
    lab.call("scontrol", "release", job)
    await wait_ended(engine, run.id)


@real
async def test_dependencies_are_slurms_own(lab: SlurmLab, engine: SlurmEngine) -> None:
    first = run_of(f"{GATE}; echo first")
    await engine.submit(first)
    second = run_of("echo second", after=(After(first.id, OK),))
    other = run_of("echo other", after=(After(first.id, DependencyCondition.FAILED),))
    for run in (second, other):
        await engine.submit(run)
    number = engine._active[first.id].record.job
    said = lab.call("squeue", "-h", "-j", str(engine._active[second.id].record.job), "-o", "%E")
    assert said.startswith(f"afterok:{number}")
    await sees(engine, second.id, lambda seen: seen.message == "waits for another job", "why it waits")
    open_gate(engine, first.id)
    assert (await wait_ended(engine, second.id)).exit_code == 0
    assert await whole_log(engine, second.id) == b"second\n"
    await sees(engine, other.id, lambda seen: "did not end as wanted" in seen.message, "that it waits in vain")
    await engine.cancel(other.id)


@real
async def test_a_run_is_not_sent_after_one_that_slurm_may_have_forgotten(lab: SlurmLab, engine: SlurmEngine) -> None:
    """Slurm takes a number that it does not know for one that ended well."""
    first = run_of("exit 3")
    await engine.submit(first)
    await wait_ended(engine, first.id)
    with pytest.raises(SiteUnavailable, match="not in Slurm's queue"):
        await engine.submit(run_of("echo never", after=(After(first.id, OK),)))


@real
async def test_slurms_own_words_reach_slurm(lab: SlurmLab, engine: SlurmEngine) -> None:
    run = run_of("scontrol -o show job $SLURM_JOB_ID", options=(SlurmOptions(dependency="singleton"),))
    await engine.submit(run)
    await wait_ended(engine, run.id)
    number = lab.call("squeue", "-h", "-t", "all", "-o", "%A %k").split()
    assert f"isthmus:{run.id}" in number


@real
async def test_tasks_are_spread_where_they_may_be(lab: SlurmLab, engine: SlurmEngine) -> None:
    """More tasks than a node has cpus."""
    options = SlurmOptions(nodes="1-4")
    run = Run(new_run_id(), "t", "wide", command=("hostname",), tasks=4, milli_cpus=4000, options=(options,))
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    names = (await whole_log(engine, run.id)).split()
    assert len(names) == 4
    assert len(set(names)) in (2, 3)


# Estimates, without a cluster

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
WAITING = SlurmJob(7, ("PENDING",), reason="Resources", started_at=NOW + timedelta(minutes=10))


def test_an_estimate_is_a_range_in_whole_minutes() -> None:
    found = start_between(WAITING, NOW)
    assert found == (NOW.replace(second=0), (NOW + timedelta(minutes=11)).replace(second=0))
    assert start_between(replace(WAITING, started_at=None), NOW) is None
    assert start_between(replace(WAITING, started_at=NOW.replace(year=8151)), NOW) is None, "a partition that is down"
    late = start_between(replace(WAITING, started_at=NOW - timedelta(hours=1)), NOW)
    assert late is not None
    assert late[0] <= late[1]


PARTITION = SlurmPartition("p")
FREE, FULL = SlurmNode("n1", cpus=2, partitions=("p",)), SlurmNode("n1", cpus=2, allocated_cpus=2, partitions=("p",))
RUNNING = SlurmJob(1, ("RUNNING",), partition="p", ended_at=NOW + timedelta(minutes=20))


def test_the_wait_in_a_partition_is_a_range_too() -> None:
    assert estimate(PARTITION, [FREE], [], NOW) == Wait(0, 0)
    assert estimate(PARTITION, [FULL], [RUNNING], NOW) == Wait(0, 21 * 60), "a job may end at once, or use all its time"
    planned = replace(WAITING, partition="p", started_at=NOW + timedelta(hours=2))
    assert estimate(PARTITION, [FULL], [RUNNING, planned], NOW) == Wait(0, 121 * 60), "behind who waits already"
    unplanned = replace(planned, started_at=None)
    assert estimate(PARTITION, [FULL], [RUNNING, unplanned], NOW) == Wait(0, None)
    held = replace(unplanned, reason="JobHeldUser")
    assert estimate(PARTITION, [FREE], [held], NOW) == Wait(0, 0), "nobody waits behind a job that is held"
    assert estimate(replace(PARTITION, state="DOWN"), [FREE], [], NOW) is None
    assert estimate(PARTITION, [], [], NOW) is None
