"""Defences behind the bounds: a blocked loop is noticed, heavy work has its place, bad credentials take time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import prometheus_client
import pytest

from isthmus.api.app import create_app
from isthmus.api.context import Plans, RequestLimits
from isthmus.api.working import WorkThreads
from isthmus.errors import Unavailable
from isthmus.identity.slowing import AT_ONCE, FREE_FAILURES, REMEMBERED, Slowing
from isthmus.resources.jobs import Job
from isthmus.server.plans import StorePlans
from isthmus.server.watchdog import Watchdog
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api
from isthmus.testing.servers import GROUP

pytestmark = pytest.mark.anyio

JOBS = f"{GROUP}/namespaces/physics/jobs"


def blocked() -> float:
    return prometheus_client.REGISTRY.get_sample_value("isthmus_loop_blocked_total") or 0


async def happens(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_blocked_loop_is_noticed_and_located(caplog: pytest.LogCaptureFixture) -> None:
    def a_function_that_blocks() -> None:
        before = blocked()
        end = time.monotonic() + 60
        while blocked() == before and time.monotonic() < end:  # until it was noticed
            time.sleep(0.01)

    before = blocked()
    watchdog = Watchdog(blocked_seconds=0.3)
    with caplog.at_level(logging.WARNING):
        watchdog.start()
        a_function_that_blocks()
        await happens(lambda: "event loop goes on" in caplog.text)
        watchdog.close()
    assert blocked() == before + 1, "counted once"
    found = next(record for record in caplog.records if record.message == "event loop is blocked")
    assert "a_function_that_blocks" in found.__dict__["at"]


# Work in threads


async def test_one_caller_cannot_take_all_threads() -> None:
    work, go = WorkThreads(threads=3, of_a_caller=2), threading.Event()
    begun: list[int] = []

    def busy(number: int) -> None:
        begun.append(number)
        go.wait(60)

    greedy = [asyncio.create_task(work.run("greedy", busy, number)) for number in range(5)]
    await happens(lambda: len(begun) == 2)
    assert await work.run("other", lambda: "done") == "done"
    assert len(begun) == 2
    go.set()
    await asyncio.gather(*greedy)
    assert len(begun) == 5


async def test_what_takes_too_long_is_given_up_and_blocks_nobody() -> None:
    work, go = WorkThreads(threads=2, seconds=0.2), threading.Event()
    with pytest.raises(Unavailable, match="given up"):
        await work.run("slow", go.wait, 60)
    assert await work.run("slow", lambda: 1) == 1
    go.set()


async def test_waiting_is_bounded() -> None:
    work, go = WorkThreads(threads=1), threading.Event()
    tasks = [asyncio.create_task(work.run("many", go.wait, 60)) for _ in range(64)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await work.run("many", lambda: None)
    assert all(not task.done() for task in tasks)
    go.set()
    await asyncio.gather(*tasks)


async def test_a_plan_that_takes_too_long_is_given_up_and_others_are_answered(api: RunningApi) -> None:
    go, plans, slow = threading.Event(), StorePlans(api.context.store), [True] * 3

    async def prepare(job: Job) -> Callable[[], object]:
        return (lambda: go.wait(60)) if slow and slow.pop() else await plans.prepare(job)

    context = replace(api.context, work=WorkThreads(seconds=0.5), plans=cast(Plans, SimpleNamespace(prepare=prepare)))
    path = f"{GROUP}/namespaces/{TENANT_NAME}/plans"
    transport = httpx.ASGITransport(create_app(context))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

        async def ask(who: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {api.tokens[who]}"}
            return await client.post(path, json={"spec": {"template": {"command": ["true"]}}}, headers=headers)

        given_up = await asyncio.gather(*(ask("member") for _ in range(3)))
        slow.clear()
        answer = await ask("viewer")
    go.set()
    assert {one.status_code for one in given_up} == {503}
    assert "given up" in given_up[0].json()["message"]
    assert answer.status_code == 201, answer.text


# Bad credentials


class Sleeps:
    """Takes the place of sleeping, and remembers for how long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._sleep = asyncio.sleep
        monkeypatch.setattr("isthmus.identity.slowing.asyncio.sleep", self)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self._sleep(0)


async def test_failures_take_ever_longer_and_are_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps, now = Sleeps(monkeypatch), [1000.0]
    slowing = Slowing(lambda: now[0])
    for _ in range(FREE_FAILURES):
        await slowing.failed("10.0.0.1", "a")
    assert sleeps.seconds == []
    for number in range(100):
        await slowing.failed("10.0.0.1", f"name-{number}")
    assert sleeps.seconds == sorted(sleeps.seconds)
    assert sleeps.seconds[-1] == 1.0
    await slowing.failed("10.0.0.2", "b")
    assert len(sleeps.seconds) == 100, "another address with another token"
    now[0] += 61
    await slowing.failed("10.0.0.1", "c")
    assert len(sleeps.seconds) == 100


async def test_guesses_at_one_token_from_many_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = Sleeps(monkeypatch)
    slowing = Slowing()
    for number in range(20):
        await slowing.failed(f"10.0.0.{number}", "the-one")
    assert len(sleeps.seconds) == 20 - FREE_FAILURES


async def test_what_is_remembered_is_bounded() -> None:
    slowing = Slowing()
    for number in range(REMEMBERED):
        await slowing.failed(f"address-{number}", f"name-{number}")
    slowing.check("address-0")


async def test_good_credentials_are_taken_while_bad_ones_wait(api: RunningApi) -> None:
    bad = {"Authorization": "Bearer ist_nobody_wrong"}
    async with api.client("member") as mine, api.client("", bad) as guesser:
        assert (await mine.get(JOBS)).status_code == 200
        for _ in range(FREE_FAILURES):
            assert (await guesser.get(JOBS)).status_code == 401
        waiting = [asyncio.create_task(guesser.get(JOBS)) for _ in range(AT_ONCE + 40)]
        codes = []
        while not all(task.done() for task in waiting):
            codes.append((await mine.get(JOBS)).status_code)
        assert set(codes) == {200}
        assert {(await task).status_code for task in waiting} <= {401, 503}


# Slow senders


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path, RequestLimits(body_seconds=0.3)) as api:
        yield api


@pytest.mark.parametrize("path", [JOBS, f"{GROUP}/namespaces/physics/files/sha256:{'0' * 64}"])
async def test_a_body_that_does_not_come_is_not_waited_for(api: RunningApi, path: str) -> None:
    method = "POST" if path == JOBS else "PUT"
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.tokens['member']}\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408"), answer
    writer.close()
    await writer.wait_closed()
