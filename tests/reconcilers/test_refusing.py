"""Objects that others wrote past our API."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from isthmus.reconcilers.refusing import Refuser
from isthmus.resources.kinds import JOB, SITE
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Sole
from isthmus.store.base import Key, Part, Record
from isthmus.store.opening import open_store
from isthmus.testing.stores import PATIENCE, changed, job, job_key, site, spec, status

pytestmark = pytest.mark.anyio


async def test_refused_shown_as_it_was_and_taken_again(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "x.db")
    refuser = Refuser(store, Sole())
    jobs, sites = (Informer(store, kind, accept=refuser.accept) for kind in (JOB, SITE))
    seen: list[Record | None] = []
    sites.on_change(lambda _, new: seen.append(new))

    async def until(holds: object) -> None:
        assert callable(holds)
        with anyio.fail_after(PATIENCE):
            while not await holds():
                await anyio.sleep(0.01)

    async def verdict(key: Key) -> tuple[str, str]:
        conditions = (await store.get(key)).obj["status"].get("conditions") or [{}]
        return conditions[0].get("status", ""), conditions[0].get("message", "")

    key = Key("Site", "", "here")

    async def refused() -> bool:
        return (await verdict(key))[0] == "False"

    async def mended() -> bool:
        return (await verdict(key))[0] == "True"

    async with anyio.create_task_group() as group:
        for part in (jobs.run, sites.run, refuser.run):
            group.start_soon(part)
        await store.create(JOB, {**job("bad"), "spec": {"command": ["a"], "script": "b"}})

        async def failed() -> bool:
            return bool((await store.get(job_key("bad"))).obj["status"]["phase"] == "Failed")

        await until(failed)
        assert "give exactly one of command" in (await store.get(job_key("bad"))).obj["status"]["message"]
        assert jobs.get(job_key("bad")) is None, "reconcilers never see it"

        good = await store.create(SITE, site("here"))
        await store.update(SITE, changed(good, spec={"driver": "slurm"}))
        await until(refused)
        assert "driver slurm needs the section slurm" in (await verdict(key))[1]
        shown = sites.get(key)
        assert shown is not None
        assert shown.obj["spec"] == good.obj["spec"], "they go on with what was good"
        now = await store.get(key)
        await store.update(SITE, changed(now, spec=site("here")["spec"]))
        await until(mended)

        running = await store.create(JOB, {**job("runs"), "status": status("Running")})
        await until_seen(jobs, running)
        await store.update(JOB, changed(running, spec=spec(command=["other"])))

        async def reported() -> bool:
            return (await verdict(running.key))[0] == "False"

        await until(reported)
        kept = await store.get(running.key)
        assert kept.obj["status"]["phase"] == "Running", "its run is not abandoned"
        assert (await store.update(JOB, changed(kept, status=status("Succeeded")), Part.STATUS)).version > kept.version

        over = await store.create(JOB, {**job("over"), "status": status("Succeeded")})
        await until_seen(jobs, over)
        await store.update(JOB, changed(over, spec=spec(priority=9)))

        async def too_late() -> bool:
            return "is Succeeded and cannot change spec.priority" in (await verdict(over.key))[1]

        await until(too_late)
        group.cancel_scope.cancel()
    await store.close()


async def until_seen(informer: Informer, record: Record) -> None:
    with anyio.fail_after(PATIENCE):
        while informer.get(record.key) is None:
            await anyio.sleep(0.01)
