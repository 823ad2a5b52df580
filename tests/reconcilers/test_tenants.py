"""Tenants: a uid of their own, suspended and back, and cleared of everything when they go."""

from __future__ import annotations

import asyncio

from isthmus.errors import NotFound
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EVENT, JOB, TENANT, TOKEN, Kind
from isthmus.store.base import Key, Query
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.planes import Plane, with_plane

OPEN = Outcome(after=None)
DEFAULT = Key(TENANT.name, "", "default")


async def gone(it: Plane, name: str) -> None:
    async def away() -> bool:
        try:
            await it.real.get(Key(TENANT.name, "", name))
        except NotFound:
            return True
        return False

    await it.until(away)


async def left(it: Plane, kind: Kind, namespace: str) -> int:
    return len((await it.real.list(Query(kind, namespace))).records)


@with_plane()
async def test_every_tenant_gets_a_uid_that_no_other_ever_had(it: Plane) -> None:
    uids = set()
    for number in range(5):
        name = f"t{number % 2}"
        await it.create(TENANT, name, {})

        async def numbered(name: str = name) -> int | None:
            found = (await it.real.get(Key(TENANT.name, "", name))).obj["status"].get("uidNumber")
            return int(found) if found else None

        uids.add(await it.until(numbered))
        await it.real.delete(Key(TENANT.name, "", name))
        await gone(it, name)
    assert len(uids) == 5


@with_plane()
async def test_a_tenant_is_suspended_and_comes_back(it: Plane) -> None:
    await it.change_object(TENANT, DEFAULT, suspended=True)
    await it.status(TENANT, "default", phase="Suspended")
    await it.change_object(TENANT, DEFAULT, suspended=False)
    await it.status(TENANT, "default", phase="Active")


@with_plane(cpus=10)
async def test_the_jobs_at_work_are_counted(it: Plane) -> None:
    it.machine.outcome = lambda _: Outcome(after=60.0)
    for number in range(3):
        await it.submit(f"job-{number}")
    await it.status(TENANT, "default", activeJobs=3)
    await it.all_ended()
    await it.status(TENANT, "default", activeJobs=0)


@with_plane()
async def test_everything_of_a_tenant_goes_with_it(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.status(TENANT, "default", phase="Active")
    await it.submit("runs")
    await it.phase("runs", "Running")
    await it.submit("held", intent="Hold")
    token = {"kind": "Token", "metadata": {"name": "t", "namespace": "default"}}
    spec = {"user": "ada", "role": "member", "sha256": "0" * 64}
    await it.real.create(TOKEN, validate(TOKEN, {**token, "spec": spec}))
    await it.real.delete(DEFAULT)
    await it.status(TENANT, "default", phase="Terminating")
    await gone(it, "default")
    for kind in (JOB, TOKEN, EVENT):
        assert await left(it, kind, "default") == 0, kind.name
    assert not it.machine.runs


@with_plane()
async def test_a_tenant_waits_for_jobs_whose_site_does_not_answer(it: Plane) -> None:
    it.machine.outcome = lambda _: OPEN
    await it.status(TENANT, "default", phase="Active")
    await it.submit("runs")
    await it.phase("runs", "Running")
    it.machine.faults.unavailable = "away"
    await it.real.delete(DEFAULT)
    await asyncio.sleep(3600)
    assert await left(it, JOB, "default") == 1
    assert (await it.real.get(DEFAULT)).obj["status"]["phase"] == "Terminating"
    it.machine.faults.unavailable = ""
    await gone(it, "default")
    assert not it.machine.runs


@with_plane()
async def test_nothing_is_cleared_without_the_lead(it: Plane) -> None:
    await it.status(TENANT, "default", phase="Active")
    await it.submit("held", intent="Hold")
    it.leadership.leads = False
    await it.real.delete(DEFAULT)
    await asyncio.sleep(600)
    assert await left(it, JOB, "default") == 1
    it.leadership.leads = True
    await gone(it, "default")
