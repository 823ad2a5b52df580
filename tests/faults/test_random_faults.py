"""Everything at once, by chance: whatever goes wrong, every accepted job ends once and no run starts twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.engines.base import Run
from isthmus.errors import NotFound
from isthmus.testing.fake_engine import Outcome

CPUS = 4
ENDS = ("Succeeded", "Failed", "Cancelled")


class Disturber:
    """Submits, cancels and deletes jobs, and breaks everything around them."""

    def __init__(self, plane: Any, seed: int) -> None:
        self.plane, self.chance = plane, random.Random(seed)
        self.names: list[str] = []
        self.deleted: set[str] = set()
        self.uids: dict[str, str] = {}
        plane.store.chance = random.Random(seed + 1)
        plane.machine.outcome = self.outcome

    def outcome(self, run: Run) -> Outcome:
        return Outcome(
            after=self.chance.choice([0.0, 0.1, 1.0, 20.0]),
            exit_code=self.chance.choice([0, 0, 1]),
            files={"kept": b"1"},
        )

    async def step(self) -> None:
        actions: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (10, self.submit), (3, self.cancel), (3, self.delete), (2, self.hold), (2, self.site), (2, self.store),
            (1, self.restart), (1, self.lead), (1, self.forget), (8, self.wait),
        ]  # fmt: skip
        action = self.chance.choices([a for _, a in actions], [weight for weight, _ in actions])[0]
        await action()

    async def submit(self) -> None:
        name = f"job-{len(self.names)}"
        spec: dict[str, Any] = {"resources": {"cpus": self.chance.choice(["0.5", "1", "3"])}}
        spec["priority"] = self.chance.randint(-2, 2)
        if self.chance.random() < 0.4:
            spec["retries"] = {"limit": 2, "backoff": "5s"}
        if self.chance.random() < 0.3:
            spec["outputs"] = ["kept"]
        if self.names and self.chance.random() < 0.3:
            condition = self.chance.choice(["Succeeded", "Finished", "Started"])
            spec["dependencies"] = [{"job": self.chance.choice(self.names), "condition": condition}]
        if self.chance.random() < 0.1:
            spec["array"] = {"indices": "0-4", "limit": 2}
        record = await self.plane.submit(name, **spec)
        self.names.append(name)
        self.uids[name] = record.uid

    def one(self) -> str | None:
        left = [name for name in self.names if name not in self.deleted]
        return self.chance.choice(left) if left else None

    async def cancel(self) -> None:
        if name := self.one():
            await self.plane.change(name, intent="Cancel")

    async def hold(self) -> None:
        if name := self.one():
            job = await self.plane.job(name)
            if job.spec.intent != "Cancel":
                await self.plane.change(name, intent=self.chance.choice(["Hold", "Run"]))

    async def delete(self) -> None:
        if name := self.one():
            self.deleted.add(name)
            with contextlib.suppress(NotFound):
                await self.plane.delete(name)

    async def site(self) -> None:
        faults = self.plane.machine.faults
        faults.unavailable = self.chance.choice(["", "", "away"])
        faults.lose_replies = self.chance.choice([0, 0, 3])
        faults.delay = self.chance.choice([0.0, 0.0, 0.5])

    async def store(self) -> None:
        store = self.plane.store
        store.away = self.chance.random() < 0.3
        store.conflicts = self.chance.choice([0.0, 0.3, 0.8])
        store.lost = self.chance.choice([0.0, 0.2])
        store.blind = self.chance.random() < 0.3
        if store.blind:
            store.disconnect()

    async def restart(self) -> None:
        await self.plane.stop()
        self.plane.start()

    async def lead(self) -> None:
        self.plane.leadership.leads = not self.plane.leadership.leads

    async def forget(self) -> None:
        # Only what is known to run: of one whose submission got no answer, nobody could tell that it was lost.
        runs = [job.run_id for job in await self.plane.jobs() if job.status.phase == "Running"]
        if runs and self.chance.random() < 0.5:
            self.plane.machine.vanish(self.chance.choice(runs))

    async def wait(self) -> None:
        for _ in range(10):
            self.plane.look()
            await asyncio.sleep(self.chance.choice([0.01, 0.1, 1.0]))

    async def heal(self) -> None:
        plane = self.plane
        plane.store.away, plane.store.conflicts, plane.store.lost = False, 0.0, 0.0
        plane.store.blind = False
        plane.machine.faults.unavailable, plane.machine.faults.delay = "", 0.0
        plane.machine.faults.lose_replies = 0
        plane.leadership.leads = True
        for name in self.names:
            if name not in self.deleted and (await plane.job(name)).spec.intent == "Hold":
                await plane.change(name, intent="Run")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("number", range(10))
def test_every_job_ends_once_and_no_run_starts_twice(
    plane: Any, on_virtual_time: Callable[[Coroutine[Any, Any, Any]], Any], number: int
) -> None:
    # Most are known stories, the last two are drawn; ISTHMUS_TEST_SEED repeats one that failed.
    seed = number if number < 8 else int(os.environ["ISTHMUS_TEST_SEED"]) + number

    async def story() -> None:
        async with plane(cpus=CPUS) as it:
            chaos = Disturber(it, seed)
            for _ in range(150):
                await chaos.step()
                assert not it.task.done(), "the control plane ended"
            await chaos.heal()
            await asyncio.sleep(3000)
            for job in await it.jobs():
                if job.status.reason == "DependencyWaiting" and "does not exist" in (job.status.message or ""):
                    await it.change(job.name, intent="Cancel")  # what it waits for was deleted before it was looked at
            jobs = await it.all_ended(seconds=5_000)
            assert {job.name for job in jobs} >= set(chaos.names) - chaos.deleted, "an accepted job was lost"
            assert max(it.machine.starts.values(), default=0) <= 1, "a run was started twice"
            check_ends(it.store.updates, {name for name in chaos.names if name not in chaos.deleted})
            for job in jobs:
                starts = sum(count for run, count in it.machine.starts.items() if run.startswith(f"{job.uid}."))
                assert starts <= job.spec.retries.limit + 1
                if job.status.phase == "Succeeded" and not job.spec.array:
                    assert starts >= 1
            assert it.most_taken <= CPUS, "more was started than there is room for"
            await no_orphans(it)

    on_virtual_time(story())


def check_ends(updates: list[tuple[Any, str]], names: set[str]) -> None:
    """Once a job has ended it stays as it ended."""
    seen: dict[str, list[str]] = defaultdict(list)
    for key, phase in updates:
        if key.name in names:
            seen[key.name].append(phase)
    for name, phases in seen.items():
        ends = [phase for phase in phases if phase in ENDS]
        assert len(set(ends)) <= 1, f"{name} ended as {ends}"
        if ends:
            assert phases[phases.index(ends[0]) :] == ends, f"{name} went on after its end: {phases}"


async def no_orphans(plane: Any) -> None:
    """No run goes on whose job is over or gone."""

    async def quiet() -> bool:
        alive = {job.uid for job in await plane.jobs() if not job.status.phase.terminal}
        running = [run for run, known in plane.machine.runs.items() if known.seen.state == "Running"]
        return all(run.rpartition(".")[0] in alive for run in running)

    await plane.until(quiet)
