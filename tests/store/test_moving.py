"""All objects move from store to store, and an import that was broken off can be repeated."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import Invalid, Misconfigured
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import (
    DEVICE_CLASS,
    EXPERIMENT,
    HOST,
    IDENTITY_PROVIDER,
    INSTANCE,
    JOB,
    KINDS,
    LEASE,
    PROFILE,
    SECRET,
    SITE,
    TEMPLATE,
    TENANT,
    TOKEN,
    USAGE_RECORD,
)
from isthmus.resources.tokens import hash_secret
from isthmus.resources.work.paths import replaced_at
from isthmus.store.base import Key, Object, Part, Query, Store
from isthmus.store.moving import CAME_AS, IMPORTING, Importer, check_complete, check_whole, export_objects, is_led
from isthmus.store.opening import open_store
from isthmus.testing.kubernetes_store import emptied
from isthmus.testing.postgres import Postgres
from isthmus.testing.stores import changed, job, job_key, owned_by, site, status

from .conftest import DataLocation

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def opened(location: str | Path) -> AsyncIterator[Store]:
    store = await open_store(location)
    try:
        yield store
    finally:
        await store.close()


async def exported(store: Store, *, tokens: bool = True) -> list[Object]:
    return [obj async for obj in export_objects(store, tokens=tokens)]


async def fill(store: Store) -> None:
    """A little of everything: a running job, an array, a dependency, a job that is being deleted, a counter."""
    tenant = validate(TENANT, {"metadata": {"name": "ada", "finalizers": ["isthmus.dev/tenant"]}, "spec": {}})
    tenant["status"]["uidNumber"] = 200_007
    ada = await store.create(TENANT, tenant)
    used = {"tenant": "ada", "tenantUid": ada.uid, "month": "2026-01", "rows": [{"day": "2026-01-31", "runs": 2}]}
    meta = {"name": f"{ada.uid}-2026-01-0", "namespace": "isthmus-system"}
    await store.create(USAGE_RECORD, validate(USAGE_RECORD, {"metadata": meta, "spec": used}))
    await store.create(SITE, {**site("here"), "status": {**site("here")["status"], "phase": "Ready"}})
    spec = {"user": "ada", "role": "member", "sha256": hash_secret("x")}
    await store.create(TOKEN, validate(TOKEN, {"metadata": {"name": "t", "namespace": "ada"}, "spec": spec}))
    spec = {"registry": "ghcr.io", "user": "ada", "sealed": "v1:x"}
    await store.create(SECRET, validate(SECRET, {"metadata": {"name": "s", "namespace": "ada"}, "spec": spec}))
    redfish = {"url": "https://bmc.example.org", "credentialsFile": "/etc/isthmus/bmc"}
    await store.create(HOST, validate(HOST, {"metadata": {"name": "node-1"}, "spec": {"redfish": redfish}}))
    spec = {
        "issuer": "https://id.example.org",
        "clientId": "isthmus",
        "rules": [{"emailDomain": "example.org", "tenant": "ada"}],
    }
    await store.create(IDENTITY_PROVIDER, validate(IDENTITY_PROVIDER, {"metadata": {"name": "campus"}, "spec": spec}))
    running = {**job("zz-running", finalizers=["isthmus.dev/run"]), "status": {**status("Running"), "site": "here"}}
    parent = await store.create(JOB, running)
    await store.create(JOB, job("element", labels={"isthmus.dev/array": "zz-running"}, **owned_by(parent)))
    known = [{"job": "zz-running", "uid": parent.uid, "satisfied": False}]
    await store.create(JOB, {**job("after"), "status": {**status("Pending"), "dependencies": known}})
    spec = {"template": {"command": ["x"]}, "parameters": [{"name": "n", "values": ["1", "2"]}]}
    sent = {"metadata": {"name": "study", "namespace": "ada"}, "spec": spec, "status": {"phase": "Running"}}
    study = await store.create(EXPERIMENT, validate(EXPERIMENT, sent))
    await store.create(JOB, job("study-0-0", **owned_by(study)))
    spec = {"command": ["x"], "port": 80}
    await store.create(TEMPLATE, validate(TEMPLATE, {"metadata": {"name": "web"}, "spec": spec}))
    sent = {"metadata": {"name": "page", "namespace": "ada"}, "spec": {"template": "web"}, "status": {"starts": 3}}
    await store.create(INSTANCE, validate(INSTANCE, sent))
    await store.create(DEVICE_CLASS, validate(DEVICE_CLASS, {"metadata": {"name": "akida"}, "spec": {}}))
    past = {"points": [{"class": "cpus", "count": 1, "seconds": [2.5]}], "runs": 1}
    await store.create(PROFILE, validate(PROFILE, {"metadata": {"name": "w", "namespace": "ada"}, "spec": past}))
    await store.create(JOB, job("going", finalizers=["x/y"]))
    await store.delete(job_key("going"))
    counter = {"metadata": {"name": "tenant-uids", "namespace": "isthmus-system"}, "spec": {"leaseTransitions": 7}}
    await store.create(LEASE, counter)


async def check(store: Store, run: str) -> None:
    """All of it is there, under new uids that fit together."""
    by_name = {record.key.name: record for record in (await store.list(Query(JOB))).records}
    assert sorted(by_name) == ["after", "element", "going", "study-0-0", "zz-running"]
    parent = by_name["zz-running"]
    assert parent.obj["status"]["phase"] == "Running"
    assert Job.model_validate(parent.obj).run_id == run, "engines know it by what it was called first"
    assert parent.obj["metadata"]["finalizers"] == ["isthmus.dev/run"]
    assert [o["uid"] for o in by_name["element"].obj["metadata"]["ownerReferences"]] == [parent.uid]
    assert [d["uid"] for d in by_name["after"].obj["status"]["dependencies"]] == [parent.uid]
    study = await store.get(Key("Experiment", "ada", "study"))
    assert study.obj["status"]["phase"] == "Running"
    assert [o["uid"] for o in by_name["study-0-0"].obj["metadata"]["ownerReferences"]] == [study.uid]
    assert (await store.get(Key("Template", "", "web"))).obj["spec"]["port"] == 80
    assert (await store.get(Key("Instance", "ada", "page"))).obj["status"]["starts"] == 3
    assert (await store.get(Key("Profile", "ada", "w"))).obj["spec"]["runs"] == 1
    assert by_name["going"].obj["metadata"]["deletionTimestamp"]
    tenant = (await store.get(Key("Tenant", "", "ada"))).obj
    (used,) = (await store.list(Query(USAGE_RECORD))).records
    assert used.obj["spec"]["tenantUid"] == tenant["metadata"]["uid"], "what was used is still the tenant's"
    assert (tenant["status"]["uidNumber"], tenant["metadata"]["finalizers"]) == (200_007, ["isthmus.dev/tenant"])
    assert (await store.get(Key("Site", "", "here"))).obj["status"]["phase"] == "Ready"
    assert (await store.get(Key("Token", "ada", "t"))).obj["spec"]["sha256"] == hash_secret("x")
    assert (await store.get(Key("Secret", "ada", "s"))).obj["spec"]["sealed"] == "v1:x"
    assert (await store.get(Key("Lease", "isthmus-system", "tenant-uids"))).obj["spec"]["leaseTransitions"] == 7


def reported(objects: list[Object]) -> list[Any]:
    """What must be the same wherever the objects live."""
    found = []
    for obj in objects[:-1]:
        meta = obj["metadata"]
        kind = KINDS[obj["kind"]]
        for reference in (reference for reference in kind.refers if reference.by_uid):
            obj = replaced_at(obj, reference.path, lambda _uid: "of this store")
        spec = validate(kind, obj)["spec"]  # some stores leave out what is not set
        found.append((obj["kind"], meta["name"], meta.get("labels"), meta.get("finalizers"), spec))
    return sorted(found, key=lambda item: item[:2])


@pytest.mark.real
async def test_between_stores_and_back(tmp_path: Path, postgres: Postgres, kubernetes_api: LabControlPlane) -> None:
    await emptied(kubernetes_api.kubeconfig)
    async with opened(tmp_path / "first.db") as store:
        await fill(store)
        run = Job.model_validate((await store.get(job_key("zz-running"))).obj).run_id
        objects = await exported(store)
    first = reported(objects)
    locations: list[str | Path] = [postgres.url, tmp_path / "second.db"]
    locations += [f"kubernetes:{kubernetes_api.kubeconfig}", tmp_path / "third.db"]
    for location in locations:
        async with opened(location) as store:
            report = await Importer(store).run(check_whole(objects))
            assert (report.refused, report.made) == ([], len(objects) - 1)
            await check(store, run)
            again = await Importer(store).run(check_whole(objects))
            assert (again.refused, again.made, again.there) == ([], 0, len(objects) - 1)
            await check(store, run)
            objects = await exported(store)
            assert reported(objects) == first


async def test_every_kind_that_is_exported_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await fill(store)
        objects = check_whole(await exported(store))
    assert {obj["kind"] for obj in objects} == {kind.name for kind in KINDS.values() if kind.exported}
    async with opened(tmp_path / "b.db") as store:
        assert (await Importer(store).run(objects)).refused == []


async def test_tokens_only_when_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await fill(store)
        assert "Token" not in {obj["kind"] for obj in await exported(store, tokens=False)}
        assert "Token" in {obj["kind"] for obj in await exported(store)}


async def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await fill(store)
        objects = await exported(store)
    for broken in (objects[:-1], objects[1:], []):
        with pytest.raises(Invalid):
            check_whole(broken)


@pytest.mark.real
async def test_broken_off_at_every_object(tmp_path: Path, kubernetes_location: DataLocation) -> None:
    """Nobody may lead on half an import; repeated, it finishes what was half done and makes the rest."""
    async with opened(tmp_path / "a.db") as store:
        await fill(store)
        run = Job.model_validate((await store.get(job_key("zz-running"))).obj).run_id
        objects = check_whole(await exported(store))
    target = await kubernetes_location.open()
    for count in range(1, len(objects)):
        importer = Importer(target)
        original = importer.take
        left = [count]

        async def stop_early(*args: Any, left: list[int] = left, original: Any = original) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            await original(*args)

        importer.take = stop_early  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await importer.run(objects)
        with pytest.raises(Misconfigured):
            await check_complete(target)
    # The status, a second write there, of the job that runs did not come about.
    half = await target.get(job_key("zz-running"))
    await target.update(JOB, changed(half, status=status("Pending")), Part.STATUS)
    report = await Importer(target).run(objects)
    assert (report.refused, report.finished) == ([], 1)
    await check_complete(target)
    await check(target, run)


async def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await fill(store)
        objects = check_whole(await exported(store))
    async with opened(tmp_path / "b.db") as other:
        own = await other.create(JOB, job("after"))
        report = await Importer(other).run(objects)
        assert [key.name for key, _ in report.refused] == ["after"]
        assert "did not come from this export" in report.refused[0][1]
        assert (await other.get(own.key)).data == own.data
        assert (await other.get(job_key("element"))).obj["metadata"]["annotations"][CAME_AS]
        with pytest.raises(Invalid):
            await Importer(other).run([{"kind": "Secret", "metadata": {"name": "x"}}])
        assert (await other.get(IMPORTING)).key == IMPORTING


async def test_whether_somebody_leads(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    async with opened(tmp_path / "a.db") as store:
        assert not await is_led(store, now)
        spec = {"holderIdentity": "one", "renewTime": "2026-01-01T00:00:00.000Z"}
        await store.create(LEASE, {"metadata": {"name": "leader", "namespace": "isthmus-system"}, "spec": spec})
        assert await is_led(store, now + timedelta(seconds=5))
        assert not await is_led(store, now + timedelta(minutes=5))


async def test_whatever_owns_an_object_comes_in_before_it(tmp_path: Path) -> None:
    """Anything may own anything: an experiment that a job owns, although jobs come after experiments."""
    async with opened(tmp_path / "a.db") as store:
        owner = await store.create(JOB, job("owner"))
        sent = {
            "metadata": {"name": "study", "namespace": "ada", **owned_by(owner)},
            "spec": {"template": {"command": ["x"]}},
        }
        await store.create(EXPERIMENT, validate(EXPERIMENT, sent))
        objects = check_whole(await exported(store))
    assert [obj["kind"] for obj in objects] == ["Experiment", "Job"]
    async with opened(tmp_path / "b.db") as store:
        assert (await Importer(store).run(objects)).refused == []
        study = (await store.get(Key("Experiment", "ada", "study"))).obj
        assert [o["uid"] for o in study["metadata"]["ownerReferences"]] == [(await store.get(job_key("owner"))).uid]
