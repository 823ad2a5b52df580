"""Ten thousand trivial jobs through the control plane and a fake engine, from submitted to succeeded."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .report import Figure, Section

SIZES = (1_000, 3_000, 10_000)


def run(seconds: int) -> Section:
    section = Section(
        "Throughput of the control plane",
        "Trivial jobs on an engine in memory that ends each at once: what is measured is everything else, each job's "
        "creation, placement, submission, observation and end, every step committed to SQLite (synchronous=FULL). One "
        "process of its own per size; memory is its peak.",
    )
    results = {size: _measure(size) for size in SIZES}
    small = results[SIZES[0]]["seconds"] / SIZES[0]
    for size, result in results.items():
        each = result["seconds"] / size
        reported = f"{size / result['seconds']:,.0f} jobs/s, peak {result['memory']:.0f} MB"
        figure = Figure(f"{size:,} jobs", reported, f"{small * 1e6:,.0f} µs per job at {SIZES[0]:,}", each / small)
        if size == 10_000:
            figure.target = "≥ 500 jobs/s, < 400 MB, ratio ≤ 1.3"
            figure.met = size / result["seconds"] >= 500 and result["memory"] < 400 and each / small <= 1.3
        section.figures.append(figure)
    return section


def _measure(size: int) -> dict[str, float]:
    words = [sys.executable, "-m", "benchmarks.throughput", str(size)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    answer: dict[str, float] = json.loads(text)
    return answer


async def _jobs(size: int, folder: Path) -> dict[str, float]:
    from isthmus.engines.base import Engine
    from isthmus.resources.frame.validation import validate
    from isthmus.resources.kinds import JOB, SITE, TENANT
    from isthmus.resources.sites import Site
    from isthmus.store.base import EventType, Query, Store
    from isthmus.testing.fake_engine import FakeEngine, FakeMachine

    from .planes import running_plane

    machine = FakeMachine()
    done: set[str] = set()
    finished = asyncio.Event()

    async def make_engine(site: Site) -> Engine:
        return FakeEngine(machine)

    async def watch(store: Store) -> None:
        async with store.watch(Query(JOB), since=await store.version()) as changes:
            async for change in changes:
                if change.record and change.type is EventType.MODIFIED and b'"phase":"Succeeded"' in change.record.data:
                    done.add(change.record.uid)
                    if len(done) == size:
                        finished.set()

    gate = asyncio.Semaphore(100)

    async def submit(store: Store, number: int) -> None:
        async with gate:
            meta = {"name": f"job-{number}", "namespace": "default"}
            obj = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": meta, "spec": {"command": ["true"]}}
            await store.create(JOB, validate(JOB, obj))

    objects = {(TENANT, "default"): {}, (SITE, "fake"): {"driver": "fake"}}
    async with running_plane(folder, make_engine, objects) as store:
        await asyncio.sleep(1)
        watching = asyncio.create_task(watch(store))
        await asyncio.sleep(0.1)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(size):
                group.create_task(submit(store, number))
        await finished.wait()
        elapsed = time.perf_counter() - start
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert max(machine.starts.values()) == 1
    return {"seconds": elapsed, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    import uvloop

    from isthmus.server.main import tune_collector

    tune_collector()
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        print(json.dumps(uvloop.run(_jobs(int(sys.argv[1]), Path(folder)))))
