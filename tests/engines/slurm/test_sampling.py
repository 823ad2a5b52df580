"""The sampler on a real cluster: as the person, cheap, and gone with the job."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from isthmus.engines.base import Account, Run
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.telemetry.journals import Sample, first_of, parse, points
from isthmus.testing.engines import new_run_id, wait_ended

pytestmark = [pytest.mark.real, pytest.mark.anyio]

BUSY = """import sys, time
held = bytearray(60_000_000)
for n in range(10_000):
    print("line", n, flush=True)
    end = time.monotonic() + 0.05
    while time.monotonic() < end: pass
"""


def processes(mark: bytes) -> list[Path]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes():
                found.append(folder)
        except OSError:
            continue  # it has ended since
    return found


def ticks(process: Path) -> int:
    """The cpu time of a process and of what it waited for."""
    return sum(int(word) for word in (process / "stat").read_text().rpartition(")")[2].split()[11:15])


async def test_a_running_job_is_sampled_for_less_than_a_hundredth_of_a_core(
    engine: SlurmEngine, settings: SlurmSettings
) -> None:
    meter = {"source": "Command", "command": ["echo", "7"]}
    await engine.probe([DeviceClass.model_validate({"metadata": {"name": "cpu"}, "spec": {"meter": meter}})])
    run = Run(new_run_id(), "t", "busy", ("python3", "-c", BUSY), account=Account("nobody"))
    await engine.submit(run)

    async def sampled(count: int) -> list[Sample]:
        async with asyncio.timeout(90):
            while True:
                samples, _ = parse(await engine.read_samples(run.id, 0, 65536))
                if len(samples) >= count:
                    return samples
                await asyncio.sleep(0.1)

    await sampled(1)
    mark = f"{settings.folder}/runs/{run.id}/launch\0sample".encode()
    (sampler,) = processes(mark)
    assert sampler.stat().st_uid == Path(f"{settings.folder}/runs/{run.id}").stat().st_uid != 0
    before = ticks(sampler)
    samples = await sampled(10)
    spent = (ticks(sampler) - before) / os.sysconf("SC_CLK_TCK") / (samples[-1].at - samples[0].at)
    assert spent < 0.01, f"{spent:.4f} of a core"
    assert max(sample.memory_bytes or 0 for sample in samples) > 50_000_000
    assert [s.output_bytes for s in samples] == sorted(s.output_bytes or 0 for s in samples)
    assert not any(sample.estimated or sample.joules is None for sample in samples)
    rates = [point.value for point in points(samples, first_of(None)) if point.name == "cpu"]
    assert max(rates) > 0.05
    await engine.cancel(run.id)
    await wait_ended(engine, run.id)
    async with asyncio.timeout(60):
        while processes(mark):
            await asyncio.sleep(0.1)
    rest, _ = parse(await engine.read_samples(run.id, 0, 65536))
    assert rest[: len(samples)] == samples, "the journal stays after the end"


async def test_files_that_a_job_writes_are_not_its_memory(engine: SlurmEngine) -> None:
    script = "head -c 200000000 /dev/zero >data; python3 -c 'import time; held = b\"x\" * 40000000; time.sleep(2)'"
    run = Run(new_run_id(), "t", "cached", ("sh", "-c", script), account=Account("nobody"))
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.usage is not None
    assert end.usage.peak_memory_bytes is not None
    assert 40_000_000 < end.usage.peak_memory_bytes < 150_000_000
