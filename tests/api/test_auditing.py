"""What the audit log keeps of requests: changes, refusals, and what administrators read; never secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.testing.apis import RunningApi, running_api

pytestmark = pytest.mark.anyio
JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
AUDIT = "/apis/isthmus.dev/v1/audit"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


async def entries(api: RunningApi, **asked: Any) -> list[dict[str, Any]]:
    async with api.client("admin") as client:
        answer = await client.get(AUDIT, params=asked)
    assert answer.status_code == 200, answer.text
    return [e for e in answer.json()["items"] if "event" not in e]


def job(name: str) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"command": ["echo", "sesame-open"]}}


async def test_changes_are_kept_with_who_and_what_became_of_them(api: RunningApi) -> None:
    async with api.client("member", {"User-Agent": "tests/1"}) as client:
        await client.post(JOBS, json=job("one"))
        await client.post(JOBS, json=job("one"))
        await client.post(JOBS, json=job("Bad Name"))
        await client.post(f"{JOBS}?dryRun=All", json=job("dry"))
        await client.patch(
            f"{JOBS}/one", json={"spec": {"hold": True}}, headers={"Content-Type": "application/merge-patch+json"}
        )
        await client.delete(f"{JOBS}/one")
    found = await entries(api, user="member")
    kept = [(e["verb"], e["resource"], e["namespace"], e.get("name"), e["outcome"]) for e in found]
    assert kept == [
        ("create", "jobs", "physics", "one", "allowed"),
        ("create", "jobs", "physics", None, "failed"),
        ("create", "jobs", "physics", None, "failed"),
        ("patch", "jobs", "physics", "one", kept[3][4]),
        ("delete", "jobs", "physics", "one", "allowed"),
    ]
    assert found[0]["credential"].startswith("token t")
    assert (found[0]["address"], found[0]["agent"], found[0]["code"]) == ("127.0.0.1", "tests/1", 201)


async def test_refusals_are_kept_and_reads_of_owners_are_not(api: RunningApi) -> None:
    async with api.client("member") as client:
        assert (await client.get(JOBS)).status_code == 200
        assert (await client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json={})).status_code < 500
    async with api.client("stranger") as client:
        await client.get(f"{JOBS}/secret-job")
        await client.post(JOBS, json=job("mine"))
        await client.get(AUDIT)
    async with api.client("", {"Authorization": "Bearer ist_wrong_secret-that-nobody-may-see"}) as client:
        await client.get(JOBS)
    async with api.client("") as client:
        await client.get(JOBS)
    assert await entries(api, user="member") == []
    found = await entries(api, outcome="refused")
    assert [(e.get("user"), e["verb"], e["resource"], e["code"]) for e in found] == [
        ("stranger", "get", "jobs", 403),
        ("stranger", "create", "jobs", 403),
        ("stranger", "get", AUDIT, 403),
        (None, "list", "jobs", 401),
        (None, "list", "jobs", 401),
    ]
    assert [e.get("credential") for e in found[3:]] == ["unknown", None]


async def test_what_administrators_read_of_tenants_is_kept(api: RunningApi) -> None:
    await api.create_job("one")
    async with api.client("admin") as client:
        for _ in range(3):
            await client.get(f"{JOBS}/one")
            await client.get(f"{JOBS}/one/log")
            await client.get("/apis/isthmus.dev/v1/jobs")
            await client.get("/apis/isthmus.dev/v1/sites")
    found = [(e["verb"], e["resource"], e.get("namespace"), e.get("name")) for e in await entries(api, user="admin")]
    assert found == [
        ("get", "jobs", "physics", "one"),
        ("get", "jobs/log", "physics", "one"),
        ("list", "jobs", "*", None),
    ]
    assert (await entries(api, user="admin"))[-1]["resource"] == AUDIT


async def test_no_secret_reaches_the_log(api: RunningApi) -> None:
    async with api.client("member") as client:
        await client.post(JOBS, json=job("one"))
        await client.post(f"{JOBS}?token=sesame-query", json=job("two"))
    async with api.client("", {"Authorization": f"Basic {api.tokens['admin']}", "User-Agent": "\x1b[31m"}) as client:
        await client.get(JOBS)
    text = b"".join(path.read_bytes() for path in (api.folder / "audit").rglob("*.log")).decode("ascii")
    assert '"name":"two"' in text
    assert "sesame" not in text
    assert "\x1b" not in text
    assert not any(token.split("_", 2)[2] in text for token in api.tokens.values())


async def test_only_administrators_of_the_platform_read_it(api: RunningApi) -> None:
    for who in ("member", "viewer", "stranger"):
        async with api.client(who) as client:
            for path in (AUDIT, f"{AUDIT}/logs", f"{AUDIT}/logs/log-test"):
                assert (await client.get(path)).status_code == 403
    async with api.client("admin") as client:
        for query in ("since=yesterday", "limit=-1", "limit=x", "colour=red", "offset=1"):
            assert (await client.get(f"{AUDIT}?{query}")).status_code == 422, query
        for name in ("log-other", "%2e%2e%2f", "log-test%2f..%2f.."):
            assert (await client.get(f"{AUDIT}/logs/{name}")).status_code == 404, name


async def test_the_console_is_seen_with_its_browser(api: RunningApi) -> None:
    async with api.client("", {"Accept": "text/html", "User-Agent": "Browser/1"}) as client:
        page = (await client.get("/console/sign-in")).text
        code = page.split('name="csrf" value="')[1].split('"')[0]
        await client.post("/console/sign-in", data={"csrf": code, "token": "ist_x_wrong"})
        await client.post("/console/sign-in", data={"csrf": code, "token": api.tokens["admin"]})
        await client.get("/console/jobs")
    found = await entries(api, address="127.0.0.1")
    signing = [(e.get("user"), e["verb"], e["outcome"], e["agent"]) for e in found if e["resource"] == "console"]
    assert signing == [(None, "sign-in", "refused", "Browser/1"), ("admin", "sign-in", "allowed", "Browser/1")]
    assert [(e["user"], e["verb"], e["agent"]) for e in found if e["resource"] == "/console/jobs"] == [
        ("admin", "get", "Browser/1")
    ]
