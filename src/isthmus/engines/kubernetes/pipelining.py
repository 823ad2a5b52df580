"""Many small writes over one connection: all requests of a bundle are sent in one go, then all answers are read.

For heartbeats. HTTP clients are made for one request at a time, and spend over a millisecond of processor time on each;
for twenty in a second, for ever, that is what such a feature costs. Pipelining is as old as HTTP/1.1, and Go's server
answers in order. Nothing else goes this way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from isthmus.errors import SiteUnavailable

Headers = Callable[[], Awaitable[Mapping[str, str]]]
MOST = 50
"""Requests in one bundle: their answers fit into the buffers on the way."""


class Answer(NamedTuple):
    """What was said to one request."""

    status: int
    body: Any


class Pipeline:
    """One connection to an API server, made when it is needed."""

    def __init__(self, url: str, context: ssl.SSLContext | None, headers: Headers, seconds: float) -> None:
        parts = urlsplit(url)
        self._host, self._prefix = parts.hostname or "", parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc
        self._context, self._headers, self._seconds = context, headers, seconds
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def put_all(self, objects: Sequence[tuple[str, Any]]) -> list[Answer]:
        """Write objects to their paths; an answer for each, in order. Raises SiteUnavailable: nothing is known."""
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(self._seconds):
                for start in range(0, len(objects), MOST):
                    answers += await self._bundle(objects[start : start + MOST])
        except (OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError) as error:
            await self.close()
            said = str(error) or type(error).__name__
            raise SiteUnavailable(f"the API server does not answer heartbeats: {said}") from error
        except BaseException:
            await self.close()  # answers may be on their way that nobody would take for what they are
            raise
        return answers

    async def close(self) -> None:
        """Let go of the connection."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()

    async def _bundle(self, objects: Sequence[tuple[str, Any]]) -> list[Answer]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, ssl=self._context)
        more = "".join(f"{name}: {value}\r\n" for name, value in (await self._headers()).items())
        self._writer.write(b"".join(self._request(path, orjson.dumps(obj), more) for path, obj in objects))
        return [await _answer(self._reader) for _ in objects]

    def _request(self, path: str, body: bytes, more: str) -> bytes:
        head = f"PUT {self._prefix}{path} HTTP/1.1\r\nHost: {self._authority}\r\nUser-Agent: isthmus\r\n{more}"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> Answer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split(" ", 2)[1])
    if "chunked" in headers.get("transfer-encoding", ""):
        content = await _chunks(reader)
    else:
        content = await reader.readexactly(int(headers["content-length"]) if "content-length" in headers else 0)
    return Answer(status, orjson.loads(content) if headers.get("content-type") == "application/json" else None)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        content += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return content
