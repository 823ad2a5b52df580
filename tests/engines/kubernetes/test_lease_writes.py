"""Many writes over few connections, against a server that answers in several ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus.engines.kubernetes.lease_writes import LeaseWrites
from isthmus.errors import SiteUnavailable

pytestmark = pytest.mark.anyio
Reply = Callable[[str], bytes | None]


def plain(path: str) -> bytes:
    body = json.dumps({"path": path}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunked(path: str) -> bytes:
    body = json.dumps({"path": path}).encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:3], body[3:]))
    return (
        b"HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + parts
        + (b"0\r\n\r\n")
    )


async def signed() -> dict[str, str]:
    return {"Authorization": "Bearer x"}


async def unsigned() -> dict[str, str]:
    return {}


class Server:
    """Answers each request as it is told to; None ends the connection."""

    def __init__(self) -> None:
        self.reply: Reply = plain
        self.connections = 0
        self.headers: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/below"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                size = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length"))
                await reader.readexactly(size)
                answer = self.reply(head.split(" ")[1])
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    yield made
    await made.stop()


async def test_answers_come_in_order(server: Server) -> None:
    writes = LeaseWrites(await server.start(), None, signed, 30)
    answers = await writes.put_all([(f"/{number}", {"n": number}) for number in range(120)])
    assert [answer.body["path"] for answer in answers] == [f"/below/{number}" for number in range(120)]
    server.reply = chunked
    assert (await writes.put_all([("/x", {}), ("/y", {})]))[1] == (409, {"path": "/below/y"})
    assert server.connections == 1
    assert "Authorization: Bearer x\r\n" in server.headers[0]
    await writes.close()


@pytest.mark.parametrize(
    ("broken", "connections"),
    [
        (None, 2),
        (b"nonsense\r\n\r\n", 2),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 2),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{", 1),
    ],
)
async def test_what_is_cut_or_broken_is_unknown_and_tried_anew(
    server: Server, broken: bytes | None, connections: int
) -> None:
    writes = LeaseWrites(await server.start(), None, unsigned, 30)
    server.reply = lambda path: plain(path) if path.endswith("/1") else broken
    with pytest.raises(SiteUnavailable, match="does not answer heartbeats"):
        await writes.put_all([("/1", {}), ("/2", {})])
    server.reply = plain
    assert len(await writes.put_all([("/1", {})])) == 1
    assert server.connections == connections
    await writes.close()


async def test_an_error_that_is_not_json_is_told_by_its_status(server: Server) -> None:
    writes = LeaseWrites(await server.start(), None, unsigned, 30)
    server.reply = lambda path: b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\noops"
    assert await writes.put_all([("/1", {})]) == [(502, None)]
    await writes.close()


async def test_silence(server: Server) -> None:
    writes = LeaseWrites(await server.start(), None, unsigned, 0.2)
    server.reply = lambda path: b""
    with pytest.raises(SiteUnavailable, match="nothing came within"):
        await writes.put_all([("/1", {})])
    await writes.close()


async def test_nobody_there() -> None:
    writes = LeaseWrites("http://127.0.0.1:1", None, unsigned, 30)
    with pytest.raises(SiteUnavailable):
        await writes.put_all([("/1", {})])
    await writes.close()
