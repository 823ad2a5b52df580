"""What was used is counted once, at every moment, whenever the control plane is killed and whatever the store loses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.api.usage_routes import UsageQuestion, count_tenant
from isthmus.engines.base import Run, RunUsage
from isthmus.resources.kinds import JOB, SITE, TENANT, USAGE_RECORD, Kind
from isthmus.resources.work.run_accounts import Amounts, UsageAccount, key_by
from isthmus.store.base import Key, Part, Query, Record, Store
from isthmus.store.moving import Importer, check_whole, export_objects
from isthmus.store.opening import open_store
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.faulty_store import FaultyStore
from isthmus.testing.planes import Plane, running_plane
from isthmus.testing.virtual_time import on_virtual_time


class DyingStore(FaultyStore):
    """After so many writes nothing is answered any more: whoever writes is as good as killed."""

    def __init__(self, store: Store, writes: int) -> None:
        super().__init__(store)
        self._left = writes
        self._one = asyncio.Lock()
        self.died = asyncio.Event()

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        async with self._one:
            return await self._counted(await super().create(kind, obj))

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        async with self._one:
            return await self._counted(await super().update(kind, obj, part))

    async def _counted(self, record: Record) -> Record:
        self._left -= 1
        if self._left <= 0:
            self.died.set()
            await asyncio.Event().wait()
        return record


async def used(store: Store, plane: Plane, by: str = "project") -> dict[str, Amounts]:
    question = UsageQuestion(by)
    uid = (await store.get(Key(TENANT.name, "", "default"))).uid

    def key(account: UsageAccount) -> str:
        return key_by(account, by)

    await count_tenant(store, question, "default", uid, key, plane.now())
    return question.found


def outcome(run: Run) -> Outcome:
    """Half an hour each; the first attempt of one job fails, and one goes on for ever."""
    usage = RunUsage(elapsed_seconds=1800.0, cpu_seconds=900.0, energy_joules=7.0)
    failed = run.job == "twice" and run.id.endswith(".0")
    return Outcome(after=None if run.job == "endless" else 1800.0, exit_code=1 if failed else 0, usage=usage)


async def worked(plane: Plane) -> None:
    """Three jobs that are over, of four runs, and one that goes on."""
    plane.machine.outcome = outcome
    await plane.change_object(SITE, Key(SITE.name, "", "fake"), prices={"cpu": 2.0})
    labels = {"isthmus.dev/project": "mri"}
    for name, more in {"once": {}, "twice": {"retries": {"limit": 1, "backoff": "1s"}}, "wide": {}}.items():
        resources = {"cpus": "2" if name == "wide" else "1"}
        spec = {"command": ["true"], "resources": resources, **more}
        await plane.create(JOB, name, spec, labels=labels)
    await plane.all_ended(seconds=20_000)


def test_killed_between_any_two_writes_nothing_is_lost_and_nothing_counted_twice(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_plane(tmp_path) as plane:
            await worked(plane)
            before = (await used(plane.real, plane))["mri"]
            assert (before.runs, before.going, before.seconds, before.cpu_seconds) == (4, 0, 7200, 9000)
            assert (before.cost, before.energy_joules, before.used_cpu_seconds) == (5.0, 28.0, 3600)
            await plane.change_object(SITE, Key(SITE.name, "", "fake"), prices={"cpu": 99.0})
            await plane.submit("endless")
            await plane.phase("endless", "Running")
            await plane.stop()
            for name in ("once", "twice", "wide", "endless"):
                await plane.delete(name)
            kills = 0
            while await plane.jobs():
                kills += 1
                plane.store = DyingStore(plane.real, 1)
                plane.start()
                while not plane.store.died.is_set() and await plane.jobs():
                    await asyncio.sleep(0.5)
                    assert (await used(plane.real, plane))["mri"] == before
                await plane.stop()
                assert (await used(plane.real, plane))["mri"] == before
            assert kills > 5, "it was killed less often than it writes"
            last = (await used(plane.real, plane))[""]
            assert (last.runs, last.going) == (1, 0)
            assert last.cost == round(last.seconds * 99 / 3600, 9) > 0, "prices are those of when it was placed"

            plane.store = FaultyStore(plane.real)
            plane.start()

            async def tidy() -> bool:
                records = (await plane.real.list(Query(USAGE_RECORD))).records
                return not any(record.obj["spec"].get("settling") for record in records)

            await plane.until(tidy)
            assert (await used(plane.real, plane))["mri"] == before
            other = await open_store(tmp_path / "other.db")
            try:
                objects = check_whole([obj async for obj in export_objects(plane.real)])
                for _ in range(2):
                    await Importer(other).run(objects)
                    assert (await used(other, plane))["mri"] == before
            finally:
                await other.close()

    on_virtual_time(story())


def test_what_the_site_learns_late_takes_the_place_of_what_was_counted(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_plane(tmp_path) as plane:
            await worked(plane)
            before = (await used(plane.real, plane))["mri"]
            once = await plane.job("once")
            assert once is not None
            run = plane.machine.runs[once.run_id]
            run.seen = replace(run.seen, usage=RunUsage(elapsed_seconds=3600.0, energy_joules=10.0))
            await plane.delete("once")
            await plane.gone("once")
            after = (await used(plane.real, plane))["mri"]
            assert (after.runs, after.seconds - before.seconds) == (before.runs, 1800)
            assert (after.energy_joules, after.cost) == (before.energy_joules + 3, before.cost + 1)

    on_virtual_time(story())


def test_lost_answers_and_conflicts_count_nothing_twice(tmp_path: Path) -> None:
    async def story() -> None:
        async with running_plane(tmp_path) as plane:
            await worked(plane)
            before = await used(plane.real, plane)
            plane.store.lost, plane.store.conflicts = 0.4, 0.2
            for name in ("once", "twice", "wide"):
                await plane.delete(name)
                plane.store.disconnect()
            for name in ("once", "twice", "wide"):
                await plane.gone(name)
            assert await used(plane.real, plane) == before

    on_virtual_time(story())
