"""Just enough HTTP/1.1 for slurmrestd: few connections, kept, each with one question at a time.

A burst of a thousand submissions is a thousand small requests to one server: here each costs a fraction of a
millisecond. A connection that the server closed meanwhile is noticed before it is used; one that breaks under a request
leaves it unanswered, and nobody sends it again in hiding.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """The server did not answer: nothing is known about what became of the request."""


class _Reading:
    """An answer as it comes in; the parser's callbacks."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.body: list[bytes] = []
        self.status: int | None = None
        """Known when the answer is whole."""
        self.keep = False
        """Whether the connection may be used again."""

    def feed(self, data: bytes) -> None:
        """A piece; raises HttpParserError. Whatever follows the first answer ends the connection, and nothing else.

        Slurm 26.05 says an error twice, in JSON and then as plain text.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            if self.status is None:
                raise

    def on_body(self, data: bytes) -> None:
        if self.status is None:
            self.body.append(data)

    def on_message_complete(self) -> None:
        # Afterwards the parser is ready for the next answer, and has forgotten this one.
        if self.status is None:
            self.status, self.keep = self.parser.get_status_code(), self.parser.should_keep_alive()
        else:
            self.keep = False


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient:
    """Asks one server. `url` is http://host:port, https://…, or unix:/path."""

    def __init__(self, url: str, *, connections: int, seconds: float) -> None:
        self._unix = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = urlsplit("http://localhost" if self._unix else url)
        self._host = parts.hostname or "localhost"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if parts.port is None else f"{name}:{self._port}"
        self._seconds = seconds
        self._gate = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []

    async def close(self) -> None:
        """Let go of the connections."""
        while self._idle:
            await _close(self._idle.pop())

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """One question; raises NoAnswer."""
        head = [
            f"{method} {self._prefix}{path} HTTP/1.1",
            f"Host: {self._authority}",
            "Accept: application/json",
            "Connection: keep-alive",
        ]
        head += [f"{name}: {value}" for name, value in headers.items()]
        if body or method == "POST":
            head.append(f"Content-Length: {len(body)}")
        if any("\r" in line or "\n" in line for line in head):
            raise ValueError("a line of a request must not contain a line break")
        message = "\r\n".join(head).encode() + b"\r\n\r\n" + body
        async with self._gate:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._exchange(message)
            except TimeoutError:
                raise NoAnswer(f"nothing came within {self._seconds:g} s") from None
            except (OSError, EOFError, httptools.HttpParserError) as error:
                raise NoAnswer(str(error) or type(error).__name__) from error

    async def _exchange(self, message: bytes) -> Answer:
        connection = await self._connection()
        done = False
        try:
            reader, writer = connection
            writer.write(message)
            await writer.drain()
            answer, keep = await _read(reader)
            done = keep
            return answer
        finally:
            if done:
                self._idle.append(connection)
            else:
                connection[1].close()

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection[0].at_eof() and not connection[1].is_closing():
                return connection
            connection[1].close()
        if self._unix is not None:
            return await asyncio.open_unix_connection(self._unix)
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls)


async def _read(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """An answer, and whether the connection may be used again."""
    reading = _Reading()
    while reading.status is None:
        piece = await reader.read(1 << 18)
        if not piece:
            raise EOFError("the connection was closed before the answer was whole")
        reading.feed(piece)
    return Answer(reading.status, b"".join(reading.body)), reading.keep


async def _close(connection: Connection) -> None:
    connection[1].close()
    with contextlib.suppress(OSError):
        await connection[1].wait_closed()
