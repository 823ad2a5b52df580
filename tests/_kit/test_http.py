"""The small HTTP client, against servers that answer well, badly, and not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from isthmus._kit.http import HttpAnswer, HttpClient, NoAnswer

pytestmark = pytest.mark.anyio
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, **options: float) -> AsyncIterator[HttpClient]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}", connections=2, seconds=options.get("seconds", 10))
    try:
        yield client
    finally:
        await client.close()
        server.close()


async def request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(ln[15:]) for ln in head.split(b"\r\n") if ln.lower().startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


async def test_connections_are_kept_and_bodies_are_read_whatever_their_form() -> None:
    made = 0
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1",
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        with suppress(asyncio.IncompleteReadError):  # the client let go
            while answers:
                head, body = await request(reader)
                assert b"X-One: 1\r\n" in head
                assert body == b"hello"
                writer.write(answers.pop(0))
        writer.close()

    async with serving(serve) as client:
        found = [await client.ask("POST", "/x", {"X-One": "1"}, b"hello") for _ in range(4)]
    assert found == [HttpAnswer(200, b"{}"), HttpAnswer(500, b"abcde"), HttpAnswer(200, b""), HttpAnswer(200, b"1")]
    assert made == 2, "a connection is used again until the server says otherwise"


async def test_several_questions_go_out_together_and_are_answered_in_order() -> None:
    made, seen = 0, []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                asked = [await request(reader) for _ in range(2)]  # nothing is answered before the second came
                seen.extend(body for _, body in asked)
                for head, _ in asked:
                    path = head.split(b" ")[1]
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
        writer.close()

    async with serving(serve) as client:
        for _ in range(2):
            found = await client.ask_all("PUT", {}, [("/a", b"1"), ("/b", b"")])
            assert found == [HttpAnswer(200, b"/a"), HttpAnswer(200, b"/b")]
    assert seen == [b"1", b""] * 2
    assert made == 1


async def test_if_one_of_several_is_not_answered_none_is() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with serving(serve) as client:
        with pytest.raises(NoAnswer):
            await client.ask_all("PUT", {}, [("/a", b"1"), ("/b", b"2")])


@pytest.mark.parametrize("first", [b"Connection: Close\r\n", b""])
async def test_what_follows_an_answer_is_not_part_of_it(first: bytes) -> None:
    """Slurm 26.05 says an error twice."""
    made = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await request(reader)
        twice = (
            b"HTTP/1.1 422 No\r\n" + first + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\nx"
        )
        writer.write(twice)
        await writer.drain()
        writer.close()

    async with serving(serve) as client:
        assert [await client.ask("GET", "/", {}) for _ in range(2)] == [HttpAnswer(422, b"{}")] * 2
    assert made == 2, "the second answer is nobody's"


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    made = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with serving(serve) as client:
        for _ in range(3):
            assert (await client.ask("GET", "/", {})).status == 200
            while client.idle and not client.idle[0].lost.done():
                await asyncio.sleep(0.01)
    assert made == 3


async def test_a_connection_that_is_answered_after_the_end_is_not_kept() -> None:
    asked, answer, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert await reader.read() == b""
        gone.set()
        writer.close()

    async with serving(serve) as client:
        asking = asyncio.create_task(client.ask("GET", "/", {}))
        await asked.wait()
        await client.close()
        answer.set()
        assert await asking == HttpAnswer(200, b"")
        async with asyncio.timeout(30):
            await gone.wait()


async def test_what_is_cut_or_not_answered_is_no_answer() -> None:
    sent = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        sent += 1
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        writer.close()

    async with serving(cut) as client:
        with pytest.raises(NoAnswer, match="before the answer was whole"):
            await client.ask("POST", "/", {}, b"{}")
    assert sent == 1, "nothing is sent again in hiding"

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await reader.read()
        writer.close()

    async with serving(silent, seconds=0.2) as client:
        with pytest.raises(NoAnswer, match="nothing came"):
            await client.ask("GET", "/", {})

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async with serving(nonsense) as client:
        with pytest.raises(NoAnswer):
            await client.ask("GET", "/", {})


async def test_no_server_and_no_line_breaks(tmp_path: Path) -> None:
    client = HttpClient(f"unix:{tmp_path}/none", connections=1, seconds=5)
    with pytest.raises(NoAnswer):
        await client.ask("GET", "/", {})
    with pytest.raises(ValueError, match="line break"):
        await client.ask("GET", "/", {"X": "a\r\nY: b"})
