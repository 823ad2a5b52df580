"""Requests: what is asked again and what is not, and that no connection is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.kubernetes.client import KubernetesClient
from isthmus.kubernetes.kubeconfigs import ClusterAccess

pytestmark = pytest.mark.anyio
Make = Callable[..., KubernetesClient]


class Busy(httpx.AsyncBaseTransport):
    """A server that has no time so often, and says when to come back."""

    def __init__(self, times: int, code: int, wait: str | None = "0.1") -> None:
        self.left, self.asked = times, 0
        self._code, self._headers = code, {} if wait is None else {"Retry-After": wait}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.left:
            self.left -= 1
            return httpx.Response(self._code, headers=self._headers, content=b'{"kind":"Status"}')
        return httpx.Response(200, content=b'{"type":"ADDED","object":{}}\n')


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[KubernetesClient] = []

    def one(transport: httpx.AsyncBaseTransport, seconds: float = 30.0) -> KubernetesClient:
        client = KubernetesClient(ClusterAccess("http://server", ssl.create_default_context()), seconds)
        client.http = httpx.AsyncClient(base_url="http://server", transport=transport)
        made.append(client)
        return client

    yield one
    for client in made:
        await client.close()


async def test_whoever_is_throttled_comes_back_as_told(make: Make) -> None:
    for code in (429, 503):
        server = Busy(3, code)
        await make(server).get("/x")
        assert server.asked == 4
    server = Busy(2, 429, wait=None)
    await make(server).create("/x", {})
    assert server.asked == 3
    server = Busy(2, 429)
    assert [event async for event in make(server).watch("/x", "", "1", 60)] == [("ADDED", {})]
    assert server.asked == 3


async def test_a_write_that_may_have_been_done_is_not_repeated(make: Make) -> None:
    for server in (Busy(1, 503, "7"), Busy(1, 500)):
        with pytest.raises(SiteUnavailable) as caught:
            await make(server).create("/x", {})
        assert server.asked == 1
    assert caught.value.retry_after == 0.1


async def test_nobody_waits_for_ever(make: Make) -> None:
    for server, most in ((Busy(10_000, 429), 9), (Busy(10_000, 429, "3600"), 1)):
        with pytest.raises(SiteUnavailable):
            await make(server, seconds=0.5).get("/x")
        assert server.asked <= most


async def test_a_closed_connection_is_made_anew_for_a_question_only(make: Make) -> None:
    asked: list[str] = []

    def broken(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        raise httpx.RemoteProtocolError("closed", request=request)

    client = make(httpx.MockTransport(broken))
    with pytest.raises(SiteUnavailable):
        await client.get("/x")
    with pytest.raises(SiteUnavailable, match="not known whether"):
        await client.create("/x", {})
    assert asked == ["GET", "GET", "POST"]
    await client.close()
    with pytest.raises(IsthmusError, match="closed"):
        await client.get("/x")


async def test_a_handshake_that_is_given_up_leaves_no_connection() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        begun.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(60), KubernetesClient(ClusterAccess(url, ssl.create_default_context())) as client:
        asking = asyncio.create_task(client.get("/x"))
        await begun.wait()
        asking.cancel()
        await ended.wait()
        await asyncio.gather(asking, return_exceptions=True)
    server.close()
    await server.wait_closed()


def test_requests_are_counted_by_what_they_ask() -> None:
    client = KubernetesClient(ClusterAccess("https://nowhere", ssl.create_default_context()), 1)
    base = "/api/v1/namespaces/isthmus/pods"
    for method, path in (("POST", base), ("GET", f"{base}/x/log"), ("DELETE", f"{base}/x"), ("GET", "/api/v1/nodes")):
        client.count(method, path)
    client.count("POST", "/apis/batch/v1/namespaces/isthmus/jobs")
    client.count("PUT", "/apis/isthmus.dev/v1/sites/here/status")
    client.count("GET", "/api/v1/nodes/n1/proxy/stats/summary")
    client.count("DELETE", "/api/v1/namespaces/ada")
    client.count("GET", "/version")
    client.count("GET", "/apis/isthmus.dev/v1")
    asked = {"POST pods", "GET pods/log", "DELETE pods", "GET nodes", "POST jobs.batch", "PUT sites.isthmus.dev/status"}
    asked |= {"GET nodes/proxy", "DELETE namespaces", "GET version", "GET isthmus.dev"}
    assert set(client.asked) == asked
