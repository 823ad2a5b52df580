"""Logs over HTTP: whole, from an offset, the last lines, followed by many, as events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from isthmus.engines.base import Stream
from isthmus.errors import SiteUnavailable
from isthmus.testing.apis import RunningApi

pytestmark = pytest.mark.anyio
BASE = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
DONE = {"phase": "Succeeded", "exitCode": 0}


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def read(response: httpx.Response) -> bytes:
    return b"".join([chunk async for chunk in response.aiter_raw()])


async def follow_raw(api: RunningApi, name: str) -> bytes:
    """Follow a log over a bare connection, which is cheaper than a client for each of many followers."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"GET {BASE}/{name}/log?follow=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Authorization: Bearer {api.tokens['member']}\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    writer.close()
    return body


def events(body: bytes) -> list[dict[str, Any]]:
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":")]
        if lines:
            fields = dict(lines)
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


async def test_a_log_comes_as_it_is(api: RunningApi) -> None:
    data = b"first\nsecond \xff\xfe\x00 third\n" + os.urandom(1_000_000)
    job = await api.create_job("j", phase="Running")
    api.logs.write(job.uid, data)
    async with api.client("viewer") as client:
        answer = await client.get(f"{BASE}/j/log")
        assert (answer.status_code, answer.content) == (200, data)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["content-length"] == str(len(data))
        assert answer.headers["isthmus-log-offset"] == "0"
        assert answer.headers["x-content-type-options"] == "nosniff"
        part = await client.get(f"{BASE}/j/log", params={"offset": 999, "limitBytes": 5})
        assert part.content == data[999:1004]
        assert part.headers["isthmus-log-offset"] == "999"
        both = await client.get(f"{BASE}/j/log", params={"offset": len(data) - 1, "tailLines": 99})
        assert both.content == data[-1:]
        beyond = await client.get(f"{BASE}/j/log", params={"offset": 10**9})
        assert (beyond.status_code, beyond.content) == (200, b"")


async def test_streams_and_attempts_are_apart(api: RunningApi) -> None:
    job = await api.create_job("j", attempt=1, **DONE)
    api.logs.write(job.uid, b"first try", attempt=0)
    api.logs.write(job.uid, b"second try", attempt=1)
    api.logs.write(job.uid, b"complaint", attempt=1, stream=Stream.STDERR)
    async with api.client() as client:
        for query, wanted in (("", b"second try"), ("attempt=0", b"first try"), ("stream=stderr", b"complaint")):
            assert (await client.get(f"{BASE}/j/log?{query}")).content == wanted
        answer = await client.get(f"{BASE}/j/log?attempt=2")
        assert answer.status_code == 422
        assert "no attempt 2" in answer.json()["message"]


@pytest.mark.parametrize(
    ("data", "lines", "wanted"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n\n", 1, b"\n"),
        (b"a\nb\n", 0, b""),
        (b"a\nb\n", 99, b"a\nb\n"),
        (b"", 3, b""),
        (b"x" * 600_000 + b"\ntail", 1, b"tail"),
        (b"head\n" + b"x" * 600_000, 1, b"x" * 600_000),
    ],
)
async def test_the_last_lines(api: RunningApi, data: bytes, lines: int, wanted: bytes) -> None:
    job = await api.create_job("j", **DONE)
    api.logs.write(job.uid, data)
    async with api.client() as client:
        answer = await client.get(f"{BASE}/j/log", params={"tailLines": lines})
        assert answer.content == wanted
        assert int(answer.headers["isthmus-log-offset"]) == len(data) - len(wanted)


WRONG = ["offset=-1", "offset=x", "offset=1e3", f"offset={2**63}", "limitBytes=0", "limitBytes=-5", "tailLines=-1"]
WRONG += ["tailLines=999999999", "stream=../x", "follow=perhaps", "attempt=-1", "attempt=99"]


@pytest.mark.parametrize("query", WRONG)
async def test_absurd_wishes_are_refused_by_name(api: RunningApi, query: str) -> None:
    await api.create_job("j")
    async with api.client() as client:
        answer = await client.get(f"{BASE}/j/log?{query}")
        assert answer.status_code == 422
        assert query.rpartition("&")[2].partition("=")[0] in answer.json()["message"]


async def test_who_may_read(api: RunningApi) -> None:
    await api.create_job("j")
    for who, code in (("stranger", 403), ("", 401), ("viewer", 200), ("admin", 200)):
        async with api.client(who) as client:
            assert (await client.get(f"{BASE}/j/log")).status_code == code
    async with api.client("stranger") as client:
        there, not_there = await client.get(f"{BASE}/j/log"), await client.get(f"{BASE}/k/log")
        assert there.json()["message"].replace('"j"', '"k"') == not_there.json()["message"]
    async with api.client() as client:
        assert (await client.get(f"{BASE}/none/log")).status_code == 404


async def test_an_array_has_no_log_and_says_which_have(api: RunningApi) -> None:
    await api.create_job("a", {"array": {"indices": "0-3"}})
    async with api.client() as client:
        answer = await client.get(f"{BASE}/a/log")
        assert answer.status_code == 422
        assert "a-0" in answer.json()["message"]


async def test_following_goes_from_before_the_start_to_the_end(api: RunningApi) -> None:
    job = await api.create_job("j")
    async with api.client() as client, client.stream("GET", f"{BASE}/j/log?follow=true") as answer:
        chunks = answer.aiter_raw()
        await api.change_job("j", phase="Running")
        api.logs.write(job.uid, b"one ")
        assert await anext(chunks) == b"one "
        api.logs.write(job.uid, b"two ")
        assert await anext(chunks) == b"two "
        api.logs.write(job.uid, b"last")
        await api.change_job("j", **DONE)
        assert b"".join([chunk async for chunk in chunks]) == b"last"


async def test_following_a_log_that_is_complete_ends(api: RunningApi) -> None:
    job = await api.create_job("j", **DONE)
    api.logs.write(job.uid, b"x" * 700_000)
    async with api.client() as client:
        assert len((await client.get(f"{BASE}/j/log?follow=1&offset=100")).content) == 699_900


async def test_following_goes_on_with_the_next_attempt(api: RunningApi) -> None:
    job = await api.create_job("j", phase="Running")
    async with (
        api.client() as client,
        client.stream("GET", f"{BASE}/j/log?follow=true") as answer,
        client.stream("GET", f"{BASE}/j/log?follow=true&attempt=0") as only_first,
    ):
        api.logs.write(job.uid, b"failed;")
        await api.change_job("j", phase="Pending", attempt=0, reason="Retrying")
        await api.change_job("j", phase="Pending", attempt=1)
        api.logs.write(job.uid, b"worked", attempt=1)
        await api.change_job("j", attempt=1, **DONE)
        assert await read(answer) == b"failed;worked"
        assert await read(only_first) == b"failed;"


async def test_following_ends_when_the_job_is_deleted(api: RunningApi) -> None:
    job = await api.create_job("j", phase="Running")
    async with api.client() as client, client.stream("GET", f"{BASE}/j/log?follow=true") as answer:
        api.logs.write(job.uid, b"x")
        await api.context.store.delete(job.key)
        await api.create_job("j", phase="Running")
        assert await read(answer) == b"x"


async def test_following_ends_after_the_bytes_that_were_wanted(api: RunningApi) -> None:
    job = await api.create_job("j", phase="Running")
    api.logs.write(job.uid, b"0123456789")
    async with api.client() as client:
        answer = await client.get(f"{BASE}/j/log?follow=true&limitBytes=4&offset=3")
        assert answer.content == b"3456"


async def test_a_client_that_leaves_is_forgotten_at_once(api: RunningApi) -> None:
    await api.create_job("j", phase="Running")
    async with api.client() as client:
        async with client.stream("GET", f"{BASE}/j/log?follow=true"):
            await until(lambda: api.logs.waiting == 1)
        await until(lambda: api.logs.waiting == 0, 10)
    await until(lambda: len(api.context.lifelines) == 0)


async def test_a_site_that_does_not_answer_breaks_nothing(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await api.create_job("j", phase="Running")
    real, failing = api.logs.read, [True, True]

    async def read_log(*args: Any) -> bytes:
        if failing:
            failing.pop()
            raise SiteUnavailable("does not answer")
        return await real(*args)

    monkeypatch.setattr(api.logs, "read", read_log)
    api.logs.write(job.uid, b"all of it")
    async with api.client() as client, client.stream("GET", f"{BASE}/j/log?follow=true") as answer:
        await api.change_job("j", **DONE)
        assert await read(answer) == b"all of it"


async def test_the_end_of_the_server_ends_followers(api: RunningApi) -> None:
    job = await api.create_job("j", phase="Running")
    api.logs.write(job.uid, b"x")
    async with api.client() as client, client.stream("GET", f"{BASE}/j/log?follow=true") as answer:
        await until(lambda: api.logs.waiting == 1)
        api.context.lifelines.close()
        assert await read(answer) == b"x"


async def test_five_hundred_followers(api: RunningApi) -> None:
    count = 500
    for number in range(5):
        await api.create_job(f"j{number}", phase="Running")
    threads = len(os.listdir("/proc/self/task"))
    async with contextlib.AsyncExitStack() as stack:
        followers = [asyncio.create_task(follow_raw(api, f"j{number % 5}")) for number in range(count)]
        stack.callback(lambda: [follower.cancel() for follower in followers])
        await until(lambda: api.logs.waiting == count, 90)
        assert len(os.listdir("/proc/self/task")) < threads + 50
        for number in range(5):
            record = await api.change_job(f"j{number}", message="going on")
            for _ in range(3):
                api.logs.write(record.uid, b"line of %d\n" % number)
                await asyncio.sleep(0)
            await api.change_job(f"j{number}", **DONE)
        async with asyncio.timeout(90):
            for number, body in enumerate(await asyncio.gather(*followers)):
                assert body == b"line of %d\n" % (number % 5) * 3
    await until(lambda: api.logs.waiting == 0)


async def test_events(api: RunningApi) -> None:
    text = "grüße ✓ \n"
    job = await api.create_job("j", phase="Running")
    async with (
        api.client(headers={"Accept": "text/event-stream"}) as client,
        client.stream("GET", f"{BASE}/j/log?follow=true") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        for at in range(len(text.encode())):
            api.logs.write(job.uid, text.encode()[at : at + 1])
            await asyncio.sleep(0.001)
        api.logs.write(job.uid, b"\xff\xe2\x82")
        await api.change_job("j", phase="Failed", exitCode=3, reason="ExitCode")
        found = events(await read(answer))
    assert "".join(event["data"] for event in found[:-1]) == text + "\ufffd\ufffd"
    assert found[-2]["id"] == f"0:{len(text.encode()) + 3}"
    assert found[-1]["event"] == "end"
    assert (found[-1]["data"]["phase"], found[-1]["data"]["exitCode"]) == ("Failed", 3)


async def test_events_are_resumed_where_they_stopped(api: RunningApi) -> None:
    data = "äöü€𝄞".encode() * 50
    job = await api.create_job("j", attempt=1, **DONE)
    api.logs.write(job.uid, data, attempt=0)
    api.logs.write(job.uid, b"second", attempt=1)
    headers = {"Accept": "text/event-stream"}
    async with api.client(headers=headers) as client:
        whole = events((await client.get(f"{BASE}/j/log?follow=true&attempt=0")).content)
        assert "".join(e["data"] for e in whole[:-1]).encode() == data
        for last, wanted in (("0:10", data[10:] + b"second"), ("10", b""), ("1:3", b"ond"), ("0:0", data + b"second")):
            answer = await client.get(f"{BASE}/j/log?follow=true", headers={"Last-Event-ID": last})
            text = "".join(e["data"] for e in events(answer.content)[:-1])
            assert text == wanted.decode("utf-8", "replace")
        wrong = await client.get(f"{BASE}/j/log?follow=true", headers={"Last-Event-ID": "a:b"})
        assert wrong.status_code == 422


async def test_a_quiet_stream_is_kept_alive(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.api.runs.logs.KEEP_ALIVE_SECONDS", 0.05)
    await api.create_job("j", phase="Running")
    headers = {"Accept": "text/event-stream"}
    async with api.client(headers=headers) as client, client.stream("GET", f"{BASE}/j/log?follow=true") as answer:
        assert (await anext(answer.aiter_raw())).startswith(b": ")


async def test_a_large_log_is_never_in_memory(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read stops the reading of the log."""
    size, taken = 2**30, 0
    piece = bytes(256 * 2**10)

    async def read_log(job: object, attempt: int, stream: object, offset: int, wanted: int) -> bytes:
        nonlocal taken
        assert wanted <= len(piece)
        data = piece[: min(wanted, size - offset)]
        taken += len(data)
        return data

    async def log_size(*args: object) -> int:
        return size

    monkeypatch.setattr(api.logs, "read", read_log)
    monkeypatch.setattr(api.logs, "size", log_size)
    await api.create_job("j", **DONE)
    async with api.client() as client, client.stream("GET", f"{BASE}/j/log") as answer:
        assert answer.headers["content-length"] == str(size)
        before = -1
        while before != taken:  # until the sender stands still
            before = taken
            await asyncio.sleep(0.2)
        assert taken < 64 * 2**20
        received = 0
        async for chunk in answer.aiter_raw():
            received += len(chunk)
            if received > 2 * before:
                break
        assert received <= taken <= received + 64 * 2**20
