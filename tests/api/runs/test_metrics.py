"""Series over HTTP: at once, from a cursor, live, exported, and seen by nobody else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from isthmus.engines.sampling import Reading, line
from isthmus.testing.apis import RunningApi

pytestmark = pytest.mark.anyio
BASE = "/apis/isthmus.dev/v1/namespaces/physics"
STARTED = "2026-01-01T00:00:00Z"
T0 = 1767225600.0


def sample(second: float, output: int = 0) -> bytes:
    return line(T0 + second, Reading(second / 2, 1000, second * 3, True, None, output))


def series(document: dict[str, Any]) -> dict[str, list[list[float]]]:
    return {one["name"]: one["points"] for one in document["series"]}


async def started(api: RunningApi, name: str = "j", **status: Any) -> str:
    record = await api.create_job(name, phase="Running", site="local", startedAt=STARTED, **status)
    return record.uid


async def test_points_come_once_and_a_cursor_goes_on(api: RunningApi) -> None:
    uid = await started(api)
    report = b'isthmus: {"loss": 0.5}\n'
    api.logs.write(uid, report)
    api.logs.sample(uid, sample(1) + sample(2, len(report)) + sample(3)[:9])
    async with api.client("viewer") as client:
        first = (await client.get(f"{BASE}/jobs/j/metrics")).json()
        assert series(first) == {
            "cpu": [[T0 + 1, 0.5], [T0 + 2, 0.5]],
            "memory": [[T0 + 1, 1000.0], [T0 + 2, 1000.0]],
            "power": [[T0 + 2, 3.0]],
            "reported.loss": [[T0 + 2, 0.5]],
        }
        assert (first["reset"], first["over"]) == (True, False)
        assert next(s for s in first["series"] if s["name"] == "power")["source"] == "estimated"
        api.logs.sample(uid, sample(3)[9:])
        await api.change_job("j", phase="Succeeded", finishedAt="2026-01-01T00:00:09Z")
        api.logs.write(uid, b'isthmus: {"loss": 0.25}')  # a last line without an end
        more = (await client.get(f"{BASE}/jobs/j/metrics", params={"since": first["cursor"]})).json()
        assert series(more)["memory"] == [[T0 + 3, 1000.0]]
        assert series(more)["reported.loss"] == [[T0 + 9, 0.25]]
        assert (more["reset"], more["over"]) == (False, True)


async def test_followers_are_sent_what_is_new_until_the_end(api: RunningApi) -> None:
    uid = await started(api)
    api.logs.sample(uid, sample(1))
    found: list[tuple[str, dict[str, Any]]] = []
    path = f"{BASE}/jobs/j/metrics?follow=true"
    async with api.client() as client, asyncio.timeout(30), client.stream("GET", path) as stream:
        name = ""
        async for text in stream.aiter_lines():
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                found.append((name, json.loads(text[6:])))
                if len(found) == 1:
                    api.logs.sample(uid, sample(2))
                elif len(found) == 2:
                    await api.change_job("j", phase="Failed")
    assert [name for name, _ in found][-1] == "end"
    assert found[-1][1] == {"phase": "Failed", "attempt": 0}
    assert [len(series(d)["memory"]) for _, d in found[:2]] == [1, 1]
    assert [d["reset"] for _, d in found[:2]] == [True, False]


async def test_many_who_ask_at_once_get_the_same(api: RunningApi) -> None:
    uid = await started(api)
    api.logs.sample(uid, b"".join(sample(n) for n in range(1, 50)))
    async with api.client() as client:
        answers = await asyncio.gather(*(client.get(f"{BASE}/jobs/j/metrics") for _ in range(40)))
    assert {len(series(answer.json())["cpu"]) for answer in answers} == {49}


async def test_a_job_that_reports_without_end_is_bounded(api: RunningApi) -> None:
    uid = await started(api)
    flood = b"".join(b'isthmus: {"v%d": %d, "loss": %d}\n' % (n, n, n) for n in range(5000))
    api.logs.write(uid, flood)
    api.logs.sample(uid, sample(1, len(flood)))
    async with api.client() as client:
        found = series((await client.get(f"{BASE}/jobs/j/metrics")).json())
    reported = [name for name in found if name.startswith("reported.")]
    assert len(reported) == 64
    assert len(found["reported.loss"]) <= 1200
    assert found["reported.loss"][-1] == [T0 + 1, 4999.0]


async def test_wrong_words_are_refused(api: RunningApi) -> None:
    await started(api)
    async with api.client() as client:
        for query in ("follow=maybe", "attempt=x", "attempt=5"):
            assert (await client.get(f"{BASE}/jobs/j/metrics?{query}")).status_code == 422, query
        assert (await client.get(f"{BASE}/telemetry/influx?since=soon")).status_code == 422
        assert (await client.get(f"{BASE}/jobs/none/metrics")).status_code == 404


async def test_exports_of_a_tenant(api: RunningApi) -> None:
    uid = await started(api)
    api.logs.sample(uid, sample(1) + sample(2))
    ended = (await api.create_job("old", phase="Succeeded", startedAt=STARTED, finishedAt=STARTED)).uid
    api.logs.sample(ended, sample(1))
    async with api.client("viewer") as client:
        scraped = await client.get(f"{BASE}/telemetry/prometheus")
        assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'isthmus_job_cpu_cores{namespace="physics",job="j",site="local"} 0.5' in scraped.text
        assert '"old"' not in scraped.text, "only what runs"
        lines = (await client.get(f"{BASE}/telemetry/influx", params={"since": T0 + 1.5})).text
        assert f"isthmus_job,namespace=physics,job=j,site=local cpu=0.5 {int(T0 + 2)}000000000" in lines
        assert "old" not in lines
        assert "job=old" in (await client.get(f"{BASE}/telemetry/influx")).text


async def test_another_tenant_sees_nothing(api: RunningApi) -> None:
    uid = await started(api)
    api.logs.sample(uid, sample(1))
    paths = (f"{BASE}/jobs/j/metrics", f"{BASE}/jobs/none/metrics", f"{BASE}/telemetry/prometheus",
             f"{BASE}/telemetry/influx", "/apis/isthmus.dev/v1/telemetry/prometheus",
             "/apis/isthmus.dev/v1/telemetry/influx")  # fmt: skip
    async with api.client("stranger") as client:
        answers = [await client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [403] * len(paths)
    hidden, none = (str(answer.json()["message"]) for answer in answers[:2])
    assert hidden.replace('"j"', '"none"') == none, "the refusal does not tell whether the job exists"
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        assert (await nobody.get(paths[0])).status_code == 401
    async with api.client("admin") as admin:
        assert 'job="j"' in (await admin.get("/apis/isthmus.dev/v1/telemetry/prometheus")).text
