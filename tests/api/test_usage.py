"""Who sees what was used: admins all of it, members their tenant's sums, and nobody another tenant's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import TENANT, TOKEN, USAGE_RECORD
from isthmus.resources.tokens import new_secret
from isthmus.store.base import Key
from isthmus.testing.apis import RunningApi, running_api

pytestmark = pytest.mark.anyio
USAGE = "/apis/isthmus.dev/v1/usage"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        ended = {"site": "a", "startedAt": "2026-03-01T00:00:00Z", "finishedAt": "2026-03-01T02:00:00Z"}
        ended |= {"phase": "Succeeded", "pricePerHour": 3.0}
        await api.create_job("hers", **ended, submittedBy="member")
        await api.create_job("theirs", **ended, submittedBy="eve", member="eve")
        store = api.context.store
        physics = await store.get(Key(TENANT.name, "", "physics"))
        gone = [{"day": "2026-01-31", "person": "eve", "runs": 5, "seconds": 3600.0, "cpuSeconds": 3600.0}]
        # The same name, and not the same tenant: what was used before it was made again is not shown to it.
        for uid, tenant in ((physics.uid, "physics"), ("earlier", "physics"), ("former", "chemistry")):
            meta = {"name": f"{uid}-2026-01-0", "namespace": "isthmus-system", "labels": {"isthmus.dev/tenant": tenant}}
            spec = {"tenant": tenant, "tenantUid": uid, "month": "2026-01", "rows": gone}
            await store.create(USAGE_RECORD, validate(USAGE_RECORD, {"metadata": meta, "spec": spec}))
        yield api


async def asked(api: RunningApi, who: str, code: int = 200, **question: str) -> dict[str, Any]:
    async with api.client(who) as client:
        answer = await client.get(USAGE, params=question)
    assert answer.status_code == code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def runs(answer: dict[str, Any]) -> dict[str, int]:
    return {item["name"]: item["runs"] for item in answer["items"]}


async def test_sums_by_what_is_asked_for(api: RunningApi) -> None:
    answer = await asked(api, "member")
    assert runs(answer) == {"2026-01": 5, "2026-03": 2}
    assert answer["items"][1] == {
        "name": "2026-03", "runs": 2, "running": 0, "hours": 4, "cpuHours": 4, "usedCpuHours": 0, "deviceHours": {},
        "energyKwh": 0, "cost": 12,
    }  # fmt: skip
    assert answer["total"]["cpuHours"] == 5
    assert runs(await asked(api, "member", by="site", since="2026-03-01", until="2026-03-01")) == {"a": 2}
    assert runs(await asked(api, "member", until="2026-02-28T23:00:00Z")) == {"2026-01": 5}
    assert runs(await asked(api, "admin", by="tenant")) == {"physics": 12, "chemistry": 5}
    assert runs(await asked(api, "admin", by="person", namespace="physics")) == {"eve": 6, "member": 1}


async def test_nobody_sees_what_is_not_theirs(api: RunningApi) -> None:
    assert runs(await asked(api, "member", by="person")) == {"member": 1, "(others)": 6}
    assert runs(await asked(api, "viewer", by="person")) == {"(others)": 7}
    assert (await asked(api, "stranger"))["items"] == []
    assert (await asked(api, "stranger", by="tenant"))["items"] == []
    refused = [(await asked(api, "stranger", 403, namespace=name))["message"] for name in ("physics", "nowhere")]
    assert refused[0] == refused[1].replace("nowhere", "physics"), "the answer tells nothing about what exists"
    # Whoever may make tokens for her tenant may call somebody as she likes: that opens no other tenant.
    name, secret, sha256 = new_secret()
    token = {
        "metadata": {"name": name, "namespace": "biology"},
        "spec": {"user": "eve", "role": "admin", "sha256": sha256},
    }
    await api.context.store.create(TOKEN, validate(TOKEN, token))
    async with api.client("", {"Authorization": f"Bearer {secret}"}) as client:
        answer = await client.get(USAGE, params={"by": "person"})
        while answer.status_code == 401:
            answer = await client.get(USAGE, params={"by": "person"})
    assert answer.json()["items"] == []
    await asked(api, "", 401)


@pytest.mark.parametrize(
    "bad", [{"by": "name"}, {"since": "soon"}, {"until": "2026-02-30"}, {"namespace": "a\0b"}, {"limit": "3"}]
)
async def test_bad_questions_are_refused(api: RunningApi, bad: dict[str, str]) -> None:
    assert (await asked(api, "admin", 422, **bad))["reason"] == "Invalid"


async def test_an_answer_is_bounded(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.api.usage_routes.MOST", 2)
    ended = {"site": "a", "startedAt": "2026-03-01T00:00:00Z", "finishedAt": "2026-03-01T02:00:00Z"}
    for number in range(3):
        await api.create_job(f"more-{number}", **{**ended, "site": f"s{number}", "phase": "Failed"})
    answer = await asked(api, "member", by="site", since="2026-02-01")
    assert runs(answer) == {"a": 2, "s0": 1, "(others)": 2}
    assert answer["total"]["runs"] == 5
