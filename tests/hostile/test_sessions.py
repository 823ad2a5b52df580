"""Sessions of the console live on the server and end there: a copied cookie is worth nothing after signing out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from isthmus._kit.clock import utcnow
from isthmus.console.session_records import MOST_OF_A_TOKEN, SessionRecords
from isthmus.console.sessions import SESSION_SECONDS
from isthmus.store.opening import open_store
from isthmus.testing.apis import RunningApi, running_api

from .conftest import code_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


async def sign_in(api: RunningApi, client: httpx.AsyncClient) -> str:
    """The code of the forms."""
    code = code_in((await client.get("/console/sign-in")).text)
    answer = await client.post("/console/sign-in", data={"csrf": code, "token": api.tokens["member"]})
    assert answer.status_code == 303
    return code_in((await client.get("/console/")).text)


def browser(api: RunningApi, cookies: httpx.Cookies | None = None) -> httpx.AsyncClient:
    headers = {"Accept": "text/html"}
    return httpx.AsyncClient(base_url=api.url, headers=headers, cookies=cookies, timeout=60, trust_env=False)


async def test_a_copied_cookie_ends_with_the_session(api: RunningApi) -> None:
    async with browser(api) as mine, browser(api) as other:
        code = await sign_in(api, mine)
        await sign_in(api, other)
        async with browser(api, httpx.Cookies(mine.cookies)) as thief:
            assert (await thief.get("/console/jobs")).status_code == 200
            assert (await mine.post("/console/sign-out", data={"csrf": code})).status_code == 303
            for path in ("/console/", "/console/jobs", "/console/live?on=jobs", "/console/jobs/physics/x/log"):
                answer = await thief.get(path)
                assert answer.status_code in (303, 401), path
                assert "member" not in answer.text
            assert (await thief.post("/console/jobs/cancel", data={"csrf": code})).status_code in (303, 401)
            assert "sign-out" not in (await thief.get("/console/no-such-page")).text
        assert (await other.get("/console/jobs")).status_code == 200, "another session of the same token goes on"


async def test_a_stream_ends_with_the_session(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.console.session_records.LOOK_SECONDS", 0.05)
    await api.create_job("job", phase="Running", startedAt="2026-01-01T00:00:00Z")
    async with browser(api) as mine:
        code = await sign_in(api, mine)
        for path in ("/console/live?on=jobs", "/console/jobs/physics/job/log?follow=true"):
            async with mine.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
                assert stream.status_code == 200
                assert (await mine.post("/console/sign-out", data={"csrf": code})).status_code == 303
                async with asyncio.timeout(60):
                    async for _ in stream.aiter_raw():
                        pass
            code = await sign_in(api, mine)


async def test_records_survive_a_restart_and_are_tidied_up(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db")
    now = utcnow()
    records = SessionRecords(store, lambda: now)
    words = [f"word-{number}" for number in range(MOST_OF_A_TOKEN + 1)]
    for word in words:
        await records.begin(word, "token")
        now += timedelta(seconds=1)
    assert not await records.goes_on(words[0]), "the oldest makes room"
    assert await records.goes_on(words[1])
    await store.close()
    store = await open_store(tmp_path / "store.db")
    records = SessionRecords(store, lambda: now)
    assert await records.goes_on(words[1])
    await records.end(words[1])
    await records.end(words[1])
    assert not await records.goes_on(words[1])
    now += timedelta(seconds=SESSION_SECONDS + 60)
    await records.begin("new", "other")
    assert [await records.goes_on(word) for word in (*words, "new")] == [False] * len(words) + [True]
    await store.close()
