"""Usage from Slurm's accounting and energy from its counters; and that two who share a node share its energy."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Observation, Run
from isthmus.engines.slurm.accounting.sharing import Neighbours
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import Accounted, SlurmJob
from isthmus.engines.slurm.observing import settling
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.errors import SiteUnavailable
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.resources.jobs import SlurmOptions
from isthmus.testing.engines import until, wait_ended, wait_log_has

from .conftest import AKIDA, MakeEngine, settings_of
from .test_exactly_once import run_of

real = pytest.mark.real


@pytest.fixture
def settings(accounting_lab: SlurmLab) -> SlurmSettings:
    return settings_of(accounting_lab)


@real
@pytest.mark.anyio
@pytest.mark.parametrize("transport", ["Command", "REST"])
async def test_usage_comes_from_the_accounting(
    transport: str, accounting_lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine
) -> None:
    rest = RestSettings(url=accounting_lab.place.rest_url, key_file=accounting_lab.place.jwt_key)
    engine = await make_engine(replace(settings, transport=transport, rest=rest))
    script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 2; exit 4"
    run = run_of(script, memory_bytes=200 * 2**20)
    await engine.submit(run)
    end = await booked(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 4)
    assert end.usage is not None
    assert end.usage.elapsed_seconds is not None
    assert end.usage.elapsed_seconds >= 2
    assert end.usage.cpu_seconds
    assert end.usage.cpu_seconds > 0.05
    assert end.usage.peak_memory_bytes
    assert end.usage.peak_memory_bytes < 200 * 2**20


@real
@pytest.mark.anyio
@pytest.mark.parametrize("fault", ["behind", "away"])
async def test_accounting_that_is_behind_or_away_holds_up_no_end(
    fault: str, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def accounted(numbers: object, since: object) -> list[Accounted]:
        nonlocal asked
        asked += 1
        if fault == "away":
            raise SiteUnavailable("slurmdbd does not answer")
        return []

    monkeypatch.setattr(engine._transport, "accounted", accounted)
    run = run_of("exit 4")
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 4)
    assert end.usage is not None
    assert end.usage.elapsed_seconds is not None
    assert asked > 1, "they were given time to catch up"


@real
@pytest.mark.anyio
async def test_accounting_that_knows_no_energy_is_not_waited_for(
    engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settler = engine._settler
    settler.facts = replace(settler.facts, measures_energy=False)
    monkeypatch.setattr(settling, "PATIENCE_SECONDS", 3600.0)
    run = run_of("exit 4")
    end = await reported_before_the_accounting(engine, run, monkeypatch)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 4)
    assert settler.late.awaits(run.id), "what they know beside is put right later"


@real
@pytest.mark.anyio
async def test_a_job_that_was_cancelled_in_the_queue_never_started(engine: SlurmEngine) -> None:
    run = run_of("true", time_limit=99 * 60, options=(SlurmOptions(partition="short"),))
    waiting = await engine.submit(run)
    number, since = int(waiting.engine_id), datetime.now(UTC) - timedelta(hours=1)
    await until(lambda: engine._transport.accounted([number], since), "the accounting to hear of it")
    await engine.cancel(run.id)
    end = await booked(engine, run.id)
    assert (end.reason, end.started_at, end.usage) == (EndReason.CANCELLED, None, None)


@real
@pytest.mark.anyio
async def test_a_step_that_failed_is_told_though_its_script_did_not_care(engine: SlurmEngine) -> None:
    run = run_of("srun sh -c 'exit 5'; exit 0")
    await engine.submit(run)
    end = await booked(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0)
    assert end.message == "one of its steps ended with exit code 5"


async def reported_before_the_accounting(engine: SlurmEngine, run: Run, patch: pytest.MonkeyPatch) -> Observation:
    """Run it with accounting that has not heard of it; the end that is reported."""

    async def empty(numbers: object, since: object) -> list[Accounted]:
        return []

    patch.setattr(engine._transport, "accounted", empty)
    await engine.submit(run)
    return await wait_ended(engine, run.id)


@real
@pytest.mark.anyio
async def test_accounting_that_catches_up_after_the_end_corrects_it(
    engine: SlurmEngine, settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("srun sh -c 'exit 5'; exit 0")
    with monkeypatch.context() as patch:
        end = await reported_before_the_accounting(engine, run, patch)
        assert not end.message, "the end does not wait for accounting that is far behind"
    news = engine.changes()
    assert run.id in await anext(news)
    end = await booked(engine, run.id)
    async with asyncio.timeout(30):
        assert await anext(news) == {run.id}, "the correction is told"
    await news.aclose()
    assert end.message == "one of its steps ended with exit code 5"
    again = await make_engine(settings)
    assert await again.observe(run.id) == end, "and kept"


@real
@pytest.mark.anyio
async def test_accounting_that_was_awaited_is_asked_again_after_a_restart(
    engine: SlurmEngine, settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("srun sh -c 'exit 5'; exit 0")
    with monkeypatch.context() as patch:
        reported = await reported_before_the_accounting(engine, run, patch)
        await engine.close()
    again = await make_engine(settings)
    assert (await again.observe(run.id)) == reported, "it stays over"
    assert again._settler.late.awaits(run.id)
    end = await booked(again, run.id)
    assert end.message == "one of its steps ended with exit code 5"
    last = await make_engine(settings)
    assert not last._settler.late.awaits(run.id), "asked once, and written down for good"
    assert await last.observe(run.id) == end
    await last.forget(run.id)
    assert not any((Path(settings.folder) / place / run.id).exists() for place in ("active", "over"))


async def booked(engine: SlurmEngine, run_id: str) -> Observation:
    """What is said of a run when the accounting has caught up with its end."""
    await wait_ended(engine, run_id)
    late = engine._settler.late
    late.pause = min(late.pause, 0.1)
    await until(lambda: asyncio.sleep(0, not late.awaits(run_id)), "the accounting to catch up")
    return await wait_ended(engine, run_id)


async def measured(lab: SlurmLab, engine: SlurmEngine, node: str, *scripts: str, cpus: int) -> list[float]:
    """Joules of runs that are on a node together while its counter counts 300."""
    counter = lab.node(node)
    counter.meter(1000)
    await asyncio.sleep(2)  # the counter is read once a second
    options = SlurmOptions(nodelist=node)
    runs = [run_of(script, milli_cpus=cpus * 1000, options=(options,)) for script in scripts]
    for run in runs:
        await engine.submit(run)
    for run in runs:
        await wait_log_has(engine, run.id, b"begun\n")
    await asyncio.sleep(2)
    counter.meter(1300)
    await asyncio.sleep(2)
    for run in runs:
        (Path(engine._files.folder(run.id)) / "work" / "go").touch()
    ends = [await booked(engine, run.id) for run in runs]
    assert all(end.usage is not None and end.usage.energy_source == "engine" for end in ends)
    return [end.usage.energy_joules or 0 for end in ends if end.usage]


WAIT = "echo begun; until test -e go; do sleep 0.1; done"


@real
@pytest.mark.anyio
async def test_energy_is_measured_and_shared(accounting_lab: SlurmLab, engine: SlurmEngine) -> None:
    node = accounting_lab.place.node_name(3)
    (alone,) = await measured(accounting_lab, engine, node, WAIT, cpus=1)
    assert alone == pytest.approx(300, rel=0.05)
    both = await measured(accounting_lab, engine, node, WAIT, WAIT, cpus=1)
    assert sum(both) == pytest.approx(300, rel=0.2), "a counter of a node that two share is not given to both"


@real
@pytest.mark.anyio
async def test_without_a_counter_energy_is_estimated_and_marked(lab: SlurmLab, make_engine: MakeEngine) -> None:
    engine = await make_engine(settings_of(lab))
    await engine.probe([AKIDA])
    run = run_of("echo units=$ISTHMUS_UNITS_AKIDA; sleep 1", devices={"akida": 1})
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"units=0\n")

    async def reported() -> bool:
        seen = await engine.observe(run.id)
        return seen is not None and seen.devices == {"akida": ("0",)}

    await until(reported, "the unit to be known")
    end = await wait_ended(engine, run.id)
    assert end.usage is not None
    assert end.usage.elapsed_seconds is not None
    assert end.usage.energy_source == "estimated"
    assert end.usage.energy_joules == pytest.approx(2 * end.usage.elapsed_seconds, rel=0.01)
    assert end.devices == {"akida": ("0",)}


# Sharing, without a cluster

T = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, nodes: str, cpus: int, begin: float, end: float, count: int = 1) -> SlurmJob:
    start, stop = T + timedelta(seconds=begin), T + timedelta(seconds=end)
    return SlurmJob(number, ("COMPLETED",), nodes=nodes, cpus=cpus, started_at=start, ended_at=stop, node_count=count)


def test_alone_it_is_all_ones_own() -> None:
    mine = job(1, "n1", 2, 0, 10)
    assert Neighbours([mine, job(2, "n2", 2, 0, 10), job(3, "n1", 2, 20, 30)], T).share(mine) == 1


def test_shared_by_cpus_over_the_time_together() -> None:
    mine = job(1, "n1", 2, 0, 10)
    assert Neighbours([mine, job(2, "n1", 2, 0, 10)], T).share(mine) == pytest.approx(0.5)
    assert Neighbours([mine, job(2, "n1", 6, 5, 10)], T).share(mine) == pytest.approx(0.5 + 0.5 * 0.25)
    assert Neighbours([job(2, "n1", 2, 0, 10)], T).share(job(1, "n1", 2, 5, 5)) == pytest.approx(0.5)


def test_what_is_given_out_is_what_there_was() -> None:
    jobs = [job(1, "n1", 1, 0, 10), job(2, "n1", 3, 0, 10), job(3, "n1", 4, 0, 10)]
    assert sum(Neighbours(jobs, T).share(one) for one in jobs) == pytest.approx(1)


def test_over_several_nodes_each_counts_alike() -> None:
    mine = job(1, "n[1-2]", 4, 0, 10, count=2)
    assert Neighbours([mine, job(2, "n2", 2, 0, 10)], T).share(mine) == pytest.approx(0.75)
