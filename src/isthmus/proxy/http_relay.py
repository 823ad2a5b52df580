"""One request of a browser, to a program and back. h11 writes and reads what goes over the wire.

Both directions wait for whoever is slower; nothing is kept but what is just being passed on. A program that answers
something that is not HTTP, or breaks off, ends this exchange and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import h11
from starlette.types import Message, Receive, Scope, Send

from isthmus.engines.base import PortStream

from .headers import Headers, header, to_browser, to_program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MOST_HEAD = 256 * 1024
"""Bytes of the head of a program's answer."""


class BrowserLeft(Exception):
    """Nobody is there any more to be answered."""


class BadAnswer(Exception):
    """What the program said is no answer, and nothing was passed on."""


async def relay(
    scope: Scope, receive: Receive, send: Send, stream: PortStream, used: Callable[[], Awaitable[None]]
) -> None:
    """Pass a request on, and its answer back; raises BadAnswer before the answer has begun, OSError after."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
    begun = False

    async def noting(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    sending = asyncio.ensure_future(_request(scope, receive, connection, stream, used))
    try:
        await _answer(connection, stream, noting, sending)
    except (h11.ProtocolError, OSError, EOFError) as error:
        if begun:
            raise OSError(f"the program broke off: {error}") from None
        raise BadAnswer(str(error)) from None
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await stream.close()


async def _request(
    scope: Scope,
    receive: Receive,
    connection: h11.Connection,
    stream: PortStream,
    used: Callable[[], Awaitable[None]],
) -> None:
    client = (scope.get("client") or ("",))[0]
    headers = to_program(scope["headers"], scheme=scope["scheme"], client=client)
    headers += _framing(scope)
    headers.append((b"connection", b"close"))
    target = scope.get("raw_path") or scope["path"].encode()
    if query := scope["query_string"]:
        target += b"?" + query
    request = h11.Request(method=scope["method"].encode(), target=target, headers=headers)
    head = connection.send(request)
    await used()
    with contextlib.suppress(OSError):  # a program may answer, and read no further
        await stream.send(head or b"")
        await _body(receive, connection, stream)
    while (await receive())["type"] != "http.disconnect":
        pass
    raise BrowserLeft


async def _body(receive: Receive, connection: h11.Connection, stream: PortStream) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BrowserLeft
        if body := message.get("body", b""):
            await stream.send(connection.send(h11.Data(data=body)) or b"")
        if not message.get("more_body", False):
            break
    if rest := connection.send(h11.EndOfMessage()):
        await stream.send(rest)


def _framing(scope: Scope) -> Headers:
    """How long the body is: as it was said, or piece by piece. Never both."""
    if header(scope["headers"], b"transfer-encoding") is not None:
        return [(b"transfer-encoding", b"chunked")]
    length = header(scope["headers"], b"content-length")
    return [(b"content-length", length)] if length is not None else []


async def _answer(connection: h11.Connection, stream: PortStream, send: Send, sending: asyncio.Future[None]) -> None:
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                reading = asyncio.ensure_future(stream.receive())
                waited: set[asyncio.Future[object]] = {reading}  # type: ignore[arg-type]
                if not sending.done():
                    waited.add(sending)  # type: ignore[arg-type]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and not reading.done():
                    sending.result()  # the browser left, or what it sent is no request
                connection.receive_data(await reading)
                reading = None
            elif isinstance(event, h11.Response):
                headers = to_browser(list(event.headers))
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            elif isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                continue
            else:
                raise OSError("the program answered something else than HTTP")
    finally:
        if reading is not None:
            reading.cancel()
