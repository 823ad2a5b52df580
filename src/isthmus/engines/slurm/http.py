"""Just enough HTTP/1.1 for slurmrestd: few connections, kept, each with one question at a time.

A burst of a thousand submissions is a thousand small requests to one server: here each costs a fraction of a
millisecond. A connection that the server closed meanwhile is noticed before it is used; one that breaks under a request
leaves it unanswered, and nobody sends it again in hiding.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
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

    def feed(self, data: bytes) -> Answer | None:
        """A piece; the answer, when it is whole. Raises HttpParserError.

        Whatever follows the answer ends the connection, and nothing else: Slurm 26.05 says an error twice, in JSON and
        then as plain text.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            if self.status is None:
                raise
        return None if self.status is None else Answer(self.status, b"".join(self.body))

    def on_body(self, data: bytes) -> None:
        if self.status is None:
            self.body.append(data)

    def on_message_complete(self) -> None:
        # Afterwards the parser is ready for the next answer, and has forgotten this one.
        if self.status is None:
            self.status, self.keep = self.parser.get_status_code(), self.parser.should_keep_alive()
        else:
            self.keep = False


class _Connection(asyncio.Protocol):
    """One connection. Callbacks and no streams: of what a question costs here, those would be half."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reading = _Reading()
        self._answer: asyncio.Future[Answer] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is no more."""
        self.usable = True
        """Whether another question may be put."""

    async def ask(self, message: bytes) -> Answer:
        """One question. Until it is answered the connection cannot be used for another."""
        assert self._transport is not None
        self.usable = False
        self._reading = _Reading()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        """Let go."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """A piece of the answer; or something that nobody asked for, and after which nothing can be trusted."""
        if self._answer is None or self._answer.done():
            self.close()
            return
        try:
            answer = self._reading.feed(data)
        except httptools.HttpParserError as error:
            self._answer.set_exception(error)
            return
        if answer is not None:
            self.usable = self._reading.keep
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or EOFError("the connection was closed before the answer was whole"))
        self.lost.set_result(None)


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
        self._idle: list[_Connection] = []
        self._closed = False

    async def close(self) -> None:
        """Let go of the connections; those under way go when they are answered."""
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            connection.close()
            await connection.lost

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
        try:
            return await connection.ask(message)
        finally:
            if connection.usable and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()

    async def _connection(self) -> _Connection:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            return (await loop.create_unix_connection(_Connection, self._unix))[1]
        return (await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls))[1]
