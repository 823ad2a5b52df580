"""Sites: opened, looked at, away and back, disabled, removed."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.engines.base import Engine
from isthmus.errors import Misconfigured, NotFound
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.resources.sites import Site
from isthmus.store.base import Key
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.planes import Plane, with_plane

OPEN = Outcome(after=None)
FAKE = Key(SITE.name, "", "fake")


def ready(status: dict[str, Any]) -> str:
    return next(str(c["status"]) for c in status["conditions"] if c["type"] == "Ready")


@with_plane(cpus=3)
async def test_a_site_that_answers_is_ready_with_its_inventory(it: Plane) -> None:
    status = await it.status(SITE, "fake", phase="Ready")
    assert status["capacity"]["cpus"] == 3
    assert [node["name"] for node in status["nodes"]] == ["fake"]
    assert ready(status) == "True"


@with_plane()
async def test_a_site_that_goes_away_keeps_what_was_known_and_comes_back(it: Plane) -> None:
    known = await it.status(SITE, "fake", phase="Ready")
    it.machine.outcome = lambda _: OPEN
    await it.submit("runs")
    running = await it.phase("runs", "Running")
    it.machine.faults.unavailable = "the link is down"
    away = await it.status(SITE, "fake", phase="Unreachable")
    assert away["capacity"] == known["capacity"]
    assert "the link is down" in away["message"]
    assert ready(away) == "False"
    await it.submit("waits")
    await asyncio.sleep(600)
    jobs = {job.name: job.status.phase.value for job in await it.jobs()}
    assert jobs == {"runs": "Running", "waits": "Pending"}, "nothing is concluded, nothing is sent"
    it.machine.end(running.run_id)
    it.machine.faults.unavailable = ""
    back = await it.status(SITE, "fake", phase="Ready")
    assert "message" not in back
    assert (await it.ended("runs")).status.phase == "Succeeded"
    await it.phase("waits", "Running")


@with_plane()
async def test_a_disabled_site_takes_nothing_new_and_lets_the_running_go_on(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("runs")
    running = await it.phase("runs", "Running")
    await it.change_object(SITE, FAKE, enabled=False)
    await it.status(SITE, "fake", phase="Disabled")
    await it.submit("waits")
    await it.waits("waits", "NoSiteFits")
    it.machine.end(running.run_id)
    assert (await it.ended("runs")).status.phase == "Succeeded"
    await it.change_object(SITE, FAKE, enabled=True)
    await it.phase("waits", "Running")


@with_plane()
async def test_a_removed_site_goes_after_its_last_job(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.submit("runs")
    running = await it.phase("runs", "Running")
    await it.real.delete(FAKE)
    await it.submit("waits")
    await asyncio.sleep(300)
    assert (await it.real.get(FAKE)).obj["metadata"]["deletionTimestamp"]
    assert len(it.machine.runs) == 1, "nothing new is placed there"
    it.machine.end(running.run_id)
    assert (await it.ended("runs")).status.phase == "Succeeded"

    async def gone() -> bool:
        try:
            await it.real.get(FAKE)
        except NotFound:
            return True
        return False

    await it.until(gone)
    await it.waits("waits", "NoSites")


@with_plane()
async def test_a_changed_spec_opens_the_engine_anew(it: Plane) -> None:
    await it.status(SITE, "fake", phase="Ready")
    opened: list[str] = []
    make = it.make_engine

    async def noting(site: Site) -> Engine:
        opened.append(site.name)
        return await make(site)

    await it.stop()
    it.make_engine = noting  # type: ignore[method-assign]
    it.start()
    await it.submit("first")
    await it.ended("first")
    assert opened == ["fake"]
    await it.change_object(SITE, FAKE, probeInterval="7s")
    await asyncio.sleep(60)
    assert opened == ["fake", "fake"]
    await asyncio.sleep(600)
    assert len(opened) == 2, "a look at the site is no reason to open it anew"


@with_plane()
async def test_a_site_that_cannot_be_opened_says_why_and_is_tried_again(it: Plane) -> None:
    await it.stop()
    make, broken = it.make_engine, [True]

    async def failing(site: Site) -> Engine:
        if broken[0]:
            raise Misconfigured("the kubeconfig cannot be read")
        return await make(site)

    it.make_engine = failing  # type: ignore[method-assign]
    it.start()
    status = await it.status(SITE, "fake", phase="Unreachable")
    assert "kubeconfig" in status["message"]
    await it.submit("waits")
    await asyncio.sleep(60)
    broken[0] = False
    assert (await it.ended("waits")).status.phase == "Succeeded"


@with_plane(devices={"gpu": 4})
async def test_devices_are_counted_over_the_sites_that_have_them(it: Plane) -> None:
    await it.create(DEVICE_CLASS, "gpu", {"vendor": "x"})
    status = await it.status(DEVICE_CLASS, "gpu", total=4)
    assert status["sites"] == {"fake": 4}
