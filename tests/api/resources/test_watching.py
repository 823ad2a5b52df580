"""Watches over HTTP: what they deliver, and when they end."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
PATCH = {"Content-Type": "application/merge-patch+json"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PATIENCE = 30.0


def job(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"command": ["true"]}}


class Watch:
    """A watch read in a thread; `None` marks its end."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._response = response
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                self._lines.put(json.loads(line))
        except httpx.HTTPError:
            pass
        self._lines.put(None)

    def next(self) -> dict[str, Any] | None:
        return self._lines.get(timeout=PATIENCE)

    def short(self) -> tuple[str, str]:
        event = self.next()
        assert event is not None, "the watch ended"
        return event["type"], event["object"]["metadata"].get("name", "")


@contextmanager
def watching(client: httpx.Client, url: str, accept: str = "application/json", **params: Any) -> Iterator[Watch]:
    with client.stream("GET", url, params={"watch": "1", **params}, headers={"Accept": accept}) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        yield Watch(response)
        # A socket that another thread still reads from is not closed by closing it.
        with suppress(OSError):
            response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def version(client: httpx.Client) -> str:
    found: str = client.get(f"{JOBS}?limit=1").json()["metadata"]["resourceVersion"]
    return found


def test_changes_come_in_order(member: httpx.Client) -> None:
    with watching(member, JOBS, resourceVersion=version(member)) as watch:
        member.post(JOBS, json=job("w1"))
        member.patch(f"{JOBS}/w1", json={"spec": {"priority": 1}}, headers=PATCH)
        member.delete(f"{JOBS}/w1")
        assert [watch.short() for _ in range(3)] == [("ADDED", "w1"), ("MODIFIED", "w1"), ("DELETED", "w1")]


def test_without_a_version_the_present_comes_first(member: httpx.Client) -> None:
    member.post(JOBS, json=job("w2", labels={"w": "2"}))
    with watching(member, JOBS, labelSelector="w=2") as watch:
        assert watch.short() == ("ADDED", "w2")
        member.patch(f"{JOBS}/w2", json={"metadata": {"labels": {"w": "3"}}}, headers=PATCH)
        assert watch.short() == ("DELETED", "w2"), "it stopped matching"
    with watching(member, f"{JOBS}", fieldSelector="metadata.name=w2", resourceVersion="0") as watch:
        assert watch.short() == ("ADDED", "w2")


def test_tables_carry_the_header_once(member: httpx.Client) -> None:
    with watching(member, JOBS, TABLE, resourceVersion=version(member)) as watch:
        member.post(JOBS, json=job("w4"))
        member.delete(f"{JOBS}/w4")
        first, second = watch.next(), watch.next()
    assert first is not None
    assert second is not None
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"]
    assert second["object"]["columnDefinitions"] == []
    assert second["object"]["rows"][0]["cells"][0] == "w4"


def test_a_version_too_old_is_told(platform: Any, member: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.errors import Expired

    def old(*_: Any, **__: Any) -> Any:
        raise Expired("version 1 is no longer kept; list again")

    monkeypatch.setattr(platform.store, "watch", old)
    answer = member.get(f"{JOBS}?watch=1&resourceVersion=1")
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")


def test_an_error_in_the_stream_is_its_last_line(
    platform: Any, member: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.errors import Expired

    class Broken:
        async def __aenter__(self) -> Broken:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

        def __aiter__(self) -> Broken:
            return self

        async def __anext__(self) -> Any:
            raise Expired("too slow; list again")

    monkeypatch.setattr(platform.store, "watch", lambda *_, **__: Broken())
    with watching(member, JOBS) as watch:
        event = watch.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 410
        assert watch.next() is None


def test_bookmarks(member: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.api.resources.watches.BOOKMARK_SECONDS", 0.05)
    for accept in ("application/json", TABLE):
        with watching(member, JOBS, accept, allowWatchBookmarks="true", resourceVersion=version(member)) as watch:
            event = watch.next()
            assert event is not None
            assert event["type"] == "BOOKMARK"
            assert event["object"]["metadata"]["resourceVersion"].isdigit()


def test_the_time_limit_ends_it_cleanly(platform: Any, member: httpx.Client) -> None:
    with watching(member, JOBS, resourceVersion=version(member), timeoutSeconds="1") as watch:
        assert watch.next() is None
    eventually(lambda: len(platform.context.lifelines) == 0)


def test_a_client_that_leaves_is_noticed_at_once(platform: Any, member: httpx.Client) -> None:
    client = platform.client(platform.token("x", "viewer", "physics"))
    with client, watching(client, JOBS, resourceVersion=version(member)):
        eventually(lambda: len(platform.context.lifelines) == 1)
    eventually(lambda: len(platform.context.lifelines) == 0)


@pytest.mark.parametrize("how", ["revoked", "deleted", "changed", "expired"])
def test_a_stream_ends_with_its_token(platform: Any, admin: httpx.Client, member: httpx.Client, how: str) -> None:
    from datetime import timedelta

    from isthmus._kit.clock import timestamp, utcnow

    secret = platform.token("x", "viewer", "physics")
    url = f"/apis/isthmus.dev/v1/namespaces/physics/tokens/{secret.split('_')[1]}"
    with platform.client(secret) as client:
        with watching(client, JOBS, resourceVersion=version(member)) as watch:
            eventually(lambda: len(platform.context.lifelines) == 1)
            if how == "deleted":
                assert admin.delete(url).status_code == 200
            else:
                soon = timestamp(utcnow() + timedelta(seconds=0.3))
                spec = {"revoked": {"revoked": True}, "changed": {"role": "member"}, "expired": {"expiresAt": soon}}[
                    how
                ]
                assert admin.patch(url, json={"spec": spec}, headers=PATCH).status_code == 200
            assert watch.next() is None
        if how != "changed":
            assert client.get(JOBS).status_code == 401


def test_hundreds_of_watchers_each_see_everything(platform: Any, member: httpx.Client) -> None:
    import asyncio

    async def count(client: httpx.AsyncClient, since: str, ready: asyncio.Semaphore) -> int:
        seen = 0
        async with client.stream("GET", JOBS, params={"watch": "1", "resourceVersion": since}) as response:
            ready.release()
            async for line in response.aiter_lines():
                seen += json.loads(line)["type"] == "ADDED"
                if seen == 5:
                    break
        return seen

    async def main() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        headers = {"Authorization": member.headers["Authorization"]}
        async with httpx.AsyncClient(
            base_url=platform.url, headers=headers, limits=limits, timeout=60, trust_env=False
        ) as client:
            ready, since = asyncio.Semaphore(0), version(member)
            tasks = [asyncio.create_task(count(client, since, ready)) for _ in range(200)]
            for _ in tasks:
                await ready.acquire()
            for i in range(5):
                await client.post(JOBS, json=job(f"many-{i}"))
            return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [5] * 200
    eventually(lambda: len(platform.context.lifelines) == 0)


def test_a_stopping_server_ends_every_stream(tmp_path: Any, platform: Any) -> None:
    other = type(platform)(tmp_path)
    other.start()
    other.tenant("physics")
    with other.client(other.token("x", "viewer", "physics")) as client, watching(client, JOBS) as watch:
        eventually(lambda: len(other.context.lifelines) == 1)
        other.stop()
        assert watch.next() is None


def test_server_sent_events_resume_by_their_id(member: httpx.Client) -> None:
    def events(seconds: int, **headers: str) -> list[dict[str, str]]:
        params = {"watch": "1", "timeoutSeconds": str(seconds)}
        answer = member.get(JOBS, params=params, headers={"Accept": "text/event-stream", **headers})
        assert answer.headers["content-type"] == "text/event-stream"
        blocks = [block for block in answer.text.split("\n\n") if block]
        return [dict(line.partition(": ")[::2] for line in block.splitlines()) for block in blocks]

    def reported(found: list[dict[str, str]]) -> list[tuple[str, str]]:
        named = [(event["event"], json.loads(event["data"])["metadata"]["name"]) for event in found]
        return [(kind, name) for kind, name in named if name.startswith("sse-")]

    before = member.get(JOBS, params={"limit": "1"}).json()["metadata"]["resourceVersion"]
    member.post(JOBS, json=job("sse-1")).raise_for_status()
    first = events(1, **{"Last-Event-ID": before})
    assert reported(first) == [("added", "sse-1")]
    member.post(JOBS, json=job("sse-2")).raise_for_status()
    member.delete(f"{JOBS}/sse-1").raise_for_status()
    assert reported(events(1, **{"Last-Event-ID": first[-1]["id"]})) == [("added", "sse-2"), ("deleted", "sse-1")]
    assert ("added", "sse-2") in reported(events(1))
