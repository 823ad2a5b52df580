"""One port for both: TLS for everybody, and plain HTTP for this machine.

The first byte a client sends says which it speaks (a TLS greeting begins with 22). Plain HTTP is convenient on
loopback, where nobody can listen in; elsewhere it would send tokens in the clear, so it is answered with a sentence
and closed, unless the administrator permits it (behind a proxy that does TLS).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from isthmus._kit.sockets import readable

log = logging.getLogger(__name__)

TLS_GREETING = 22
PATIENCE = 30.0
"""Seconds a new connection may stay silent, and that a request may take to say what it wants."""
HEAD_LIMIT = 64 * 1024
"""Bytes of a request before its body: the parser itself would keep any number, of anybody."""
_WITHOUT_BODY = (b"GET", b"HEAD", b"DELETE")
SMALL, FEW = 64 * 1024, 8
"""Bytes and number of pieces that may wait for each other, until the next turn of the loop."""
NOTSENT_LOWAT = 25
"""TCP_NOTSENT_LOWAT: of a WebSocket the kernel holds little unsent, so that what is urgent leaves soon."""
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 43\r\n\r\n"
    b"this address speaks HTTPS; write https://\r\n"
)
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: 44\r\n\r\nthe address and headers are above 64 KiB\r\n\r\n"
)


class Listener(uvicorn.Server):
    """An HTTP server whose connections may or may not begin with TLS."""

    def __init__(
        self, config: uvicorn.Config, tls: ssl.SSLContext, *, plain: bool, stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._tls, self._plain, self._stopping = tls, plain, stopping
        self._accepting: asyncio.Task[None] | None = None
        self._greetings: set[asyncio.Task[None]] = set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop in order on SIGINT and SIGTERM; uvicorn's own way would end the process before it is tidied up."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _asked_to_stop(self) -> None:
        self.force_exit = self.should_exit  # asked twice: do not wait for requests under way
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = []
        self._accepting = asyncio.create_task(self._accept(sockets[0]), name="accept")
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, end the streams that would never end by themselves, let what is under way end."""
        for task in (self._accepting, *self._greetings):
            if task is not None:
                task.cancel()
        self._stopping()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # most likely too many open files: others must close first
                log.warning("connection not accepted", extra={"error": str(error)})
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._greet(connection))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _greet(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(PATIENCE):
                first = await _first_byte(loop, connection)
                if first == TLS_GREETING:
                    await loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
                elif first is not None and self._plain:
                    await loop.connect_accepted_socket(self._protocol, connection)
                else:
                    if first is not None:
                        await loop.sock_sendall(connection, REFUSAL)
                    connection.close()
        except (OSError, TimeoutError):  # gone, silent, or not able to agree on TLS: theirs to try again
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _protocol(self) -> asyncio.Protocol:
        return _HttpConnection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)


class Joining:
    """A transport on which the few small things that are written in one turn of the loop leave together.

    The head of an answer and its body are written one after the other: apart, they would cost the network, and whoever
    reads them, twice. Much goes at once: whoever sends it must feel that it is not read.
    """

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send, with what else there is to send."""
        if len(data) > SMALL:
            self._flush()
            self._transport.write(data)
            return
        self._parts.append(data)
        if len(self._parts) == 1:
            self._loop.call_soon(self._flush)
        elif len(self._parts) == FEW:
            self._flush()

    def close(self) -> None:
        """Send what there is, and end."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _HttpConnection(HttpToolsProtocol):
    """One connection. Who sends endless headers, or none, is let go: neither memory nor descriptors are theirs."""

    _in_head = True
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(cast(asyncio.Transport, Joining(transport, self.loop)))
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and look how much was said."""
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_LIMIT:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._timer is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It has said what it wants; the clock runs on until its body begins, or there is none."""
        self._in_head = False
        if self._timer is None and self.parser.get_method() not in _WITHOUT_BODY:
            self._wait_for_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Its body comes; how fast is for whoever reads it."""
        self._stop_waiting()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is here."""
        self._stop_waiting()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """It is a WebSocket from here on."""
        self._stop_waiting()
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT, SMALL)
        super().handle_websocket_upgrade()

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(PATIENCE, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _first_byte(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> int | None:
    """The first byte, left in place for whoever reads next; None if the other side hung up."""
    while True:
        try:
            peeked = connection.recv(1, socket.MSG_PEEK)
            return peeked[0] if peeked else None
        except BlockingIOError:
            await readable(connection)
