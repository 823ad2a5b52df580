"""Just enough HTTP/1.1 for many small requests to one server: few connections, and they are kept.

For slurmrestd, where a burst of a thousand submissions is a thousand requests, and for the heartbeats of nodes in
Kubernetes, twenty a second for ever. A request takes about 45 µs of processor time here and 900 µs with httpx
(docs/design/0018). A connection that the server closed meanwhile is noticed before it is used; one that breaks under a
request leaves it unanswered, and nobody sends it again in hiding.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools


class HttpAnswer(NamedTuple):
    """What the server answered."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """The server did not answer: nothing is known about what became of the request."""


class _Reading:
    """Answers as they come in; the parser's callbacks."""

    def __init__(self, wanted: int) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.answers: list[HttpAnswer] = []
        self.keep = False
        """Whether the connection may be used again."""
        self._wanted = wanted
        self._body: list[bytes] = []

    @property
    def whole(self) -> bool:
        """Whether all answers are there."""
        return len(self.answers) == self._wanted

    def feed(self, data: bytes) -> None:
        """A piece. Raises HttpParserError.

        Whatever follows the last answer ends the connection, and nothing else: Slurm 26.05 says an error twice, in JSON
        and then as plain text.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            if not self.whole:
                raise

    def on_body(self, data: bytes) -> None:
        if not self.whole:
            self._body.append(data)

    def on_message_complete(self) -> None:
        # Afterwards the parser is ready for the next answer, and has forgotten this one.
        if self.whole:
            self.keep = False
            return
        self.answers.append(HttpAnswer(self.parser.get_status_code(), b"".join(self._body)))
        self._body = []
        self.keep = self.parser.should_keep_alive()


class _Connection(asyncio.Protocol):
    """One connection. Callbacks and no streams: of what a question costs here, those would be half."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reading = _Reading(0)
        self._answers: asyncio.Future[list[HttpAnswer]] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is no more."""
        self.usable = True
        """Whether other questions may be put."""

    async def ask(self, message: bytes, wanted: int) -> list[HttpAnswer]:
        """So many questions at once. Until all are answered the connection cannot be used for others."""
        assert self._transport is not None
        self.usable = False
        self._reading = _Reading(wanted)
        self._answers = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answers

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
        if self._answers is None or self._answers.done():
            self.close()
            return
        try:
            self._reading.feed(data)
        except httptools.HttpParserError as error:
            self._answers.set_exception(error)
            return
        if self._reading.whole:
            self.usable = self._reading.keep
            self._answers.set_result(self._reading.answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.usable = False
        if self._answers is not None and not self._answers.done():
            self._answers.set_exception(exc or EOFError("the connection was closed before the answer was whole"))
        self.lost.set_result(None)


class HttpClient:
    """Asks one server. `url` is http://host:port, https://…, or unix:/path; `tls` replaces the system's trust."""

    def __init__(self, url: str, *, connections: int, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        self._unix = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = urlsplit("http://localhost" if self._unix else url)
        self._host = parts.hostname or "localhost"
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if parts.port is None else f"{name}:{self._port}"
        self._seconds = seconds
        self._gate = asyncio.Semaphore(connections)
        self.idle: list[_Connection] = []
        self._closed = False

    async def close(self) -> None:
        """Let go of the connections; those under way go when they are answered."""
        self._closed = True
        while self.idle:
            connection = self.idle.pop()
            connection.close()
            await connection.lost

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> HttpAnswer:
        """One question; raises NoAnswer."""
        return (await self.ask_all(method, headers, [(path, body)]))[0]

    async def ask_all(
        self, method: str, headers: Mapping[str, str], questions: Sequence[tuple[str, bytes]]
    ) -> list[HttpAnswer]:
        """Paths and bodies, sent in one go over one connection; their answers in order. Raises NoAnswer for all.

        Pipelining, as old as HTTP/1.1. Only for what may be asked again, of a server that answers in order, and for no
        more at once than fit into the buffers on the way.
        """
        message = b"".join(self._message(method, path, headers, body) for path, body in questions)
        async with self._gate:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._exchange(message, len(questions))
            except TimeoutError:
                raise NoAnswer(f"nothing came within {self._seconds:g} s") from None
            except (OSError, EOFError, httptools.HttpParserError) as error:
                raise NoAnswer(str(error) or type(error).__name__) from error

    def _message(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        head = [
            f"{method} {self._prefix}{path} HTTP/1.1",
            f"Host: {self._authority}",
            "Accept: application/json",
            "Connection: keep-alive",
        ]
        head += [f"{name}: {value}" for name, value in headers.items()]
        if body or method in ("POST", "PUT"):
            head.append(f"Content-Length: {len(body)}")
        if any("\r" in line or "\n" in line for line in head):
            raise ValueError("a line of a request must not contain a line break")
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    async def _exchange(self, message: bytes, wanted: int) -> list[HttpAnswer]:
        connection = await self._connection()
        try:
            return await connection.ask(message, wanted)
        finally:
            if connection.usable and not self._closed:
                self.idle.append(connection)
            else:
                connection.close()

    async def _connection(self) -> _Connection:
        while self.idle:
            if (connection := self.idle.pop()).usable:
                return connection
        loop = asyncio.get_running_loop()
        if self._unix is not None:
            return (await loop.create_unix_connection(_Connection, self._unix))[1]
        return (await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls))[1]
