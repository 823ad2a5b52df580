"""What `isthmus plan` says of a job without a deadline is what happens to it: one function decides both."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from isthmus._kit.ids import new_uid
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.resources.sites import Site
from isthmus.server.plans import StorePlans
from isthmus.testing.fake_engine import FakeMachine, Outcome
from isthmus.testing.planes import Plane, with_plane

JOBS = 12


@pytest.mark.parametrize("seed", range(6))
def test_plan_names_the_site_that_the_job_goes_to(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    @with_plane(cpus=chance.choice([1, 4]))
    async def check(it: Plane) -> None:
        it.queues = chance.random() < 0.3
        await it.create(DEVICE_CLASS, "board", {"pricePerHour": chance.choice([0, 2])})
        for number in range(chance.randint(1, 4)):
            devices = {"board": 1} if chance.random() < 0.5 else {}
            machine = it.machines[f"s{number}"] = FakeMachine(cpus=chance.choice([1, 2, 4, 8]), devices=devices)
            machine.now, machine.outcome = it.now, lambda _: Outcome(after=None)
            prices = chance.choice([None, {"cpu": 1}, {"cpu": 0.5, "devices": {"board": 1}}])
            await it.create(SITE, f"s{number}", {"driver": "fake"} | ({"prices": prices} if prices else {}))
            await it.status(SITE, f"s{number}", phase="Ready")
        it.machine.outcome = lambda _: Outcome(after=None)
        await it.submit("first")
        await it.phase("first", "Running", "Queued")
        for number in range(JOBS):
            await _one(it, f"job-{number}", chance)

    check(tmp_path)


async def _one(it: Plane, name: str, chance: random.Random) -> None:
    resources: dict[str, object] = {"cpus": str(chance.choice([1, 2, 4]))}
    if chance.random() < 0.3:
        resources["devices"] = [{"class": "board"}]
    metadata = {"name": "asked", "namespace": "default", "uid": new_uid()}
    asked = Job.model_validate({"metadata": metadata, "spec": {"command": ["true"], "resources": resources}})
    said = await asyncio.to_thread(await StorePlans(it.real, it.now).prepare(asked))
    await it.submit(name, resources=resources)

    async def settled() -> Job | None:
        job = await it.job(name)
        return job if job and (job.status.site or job.status.reason) else None

    seen = await it.until(settled)
    if seen.status.site is None:
        assert said.chosen is None or said.chosen.starts_at > said.decided_at
        await it.change(name, intent="Cancel")
        await it.ended(name)
    else:
        assert said.chosen is not None
        assert said.chosen.site == seen.status.site, said.message


def test_the_price_in_expressions_is_the_price_that_is_paid() -> None:
    def site(spec: dict[str, object], **labels: str) -> Site:
        metadata = {"name": "a", "labels": labels}
        return Site.model_validate({"metadata": metadata, "spec": {"driver": "local", **spec}})

    assert site({"prices": {"cpu": 1.5}}, price="9").attributes["price"] == "1.5"
    assert site({}, price="1.5").prices == site({"prices": {"cpu": 1.5}}).prices
    assert site({}, price="cheap").prices is None
    assert "price" not in site({}).attributes
