"""A WebSocket of a browser, to a program and back. `websockets` writes and reads what goes over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from isthmus.engines.base import PortStream

from .headers import header, to_program

LARGEST = 16 * 2**20
"""Bytes of a message of a program."""
_ITS_OWN = frozenset({
    b"host", b"origin", b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions",
    b"sec-websocket-protocol",
})  # fmt: skip
_CLOSE_CODES = range(1000, 5000)


async def relay_socket(
    scope: Scope, receive: Receive, send: Send, stream: PortStream, used: Callable[[], Awaitable[None]]
) -> None:
    """Pass messages on, both ways, until one side leaves."""
    try:
        protocol = _begin(scope)
        await _flush(protocol, stream)
        frames = await _shake_hands(protocol, stream)
        if frames is None:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "the program does not take it"})
            return
        await receive()
        await send({"type": "websocket.accept", "subprotocol": protocol.subprotocol})
        await _both(_inward(receive, protocol, stream, used), _outward(protocol, stream, send, frames))
    finally:
        await stream.close()


def _begin(scope: Scope) -> ClientProtocol:
    target = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    if query := scope["query_string"]:
        target += "?" + query.decode("latin-1")
    host = (header(scope["headers"], b"host") or b"").decode("latin-1")
    offered = [Subprotocol(name) for name in scope.get("subprotocols") or ()]
    protocol = ClientProtocol(parse_uri(f"ws://{host}{target}"), subprotocols=offered or None, max_size=LARGEST)
    request = protocol.connect()
    scheme = "https" if scope["scheme"] in ("wss", "https") else "http"
    client = (scope.get("client") or ("",))[0]
    for name, value in to_program(scope["headers"], scheme=scheme, client=client):
        if name not in _ITS_OWN or name == b"origin":
            request.headers[name.decode("latin-1")] = value.decode("latin-1")
    protocol.send_request(request)
    return protocol


async def _shake_hands(protocol: ClientProtocol, stream: PortStream) -> list[Frame] | None:
    """The frames that came with the program's consent; None: it refuses."""
    while protocol.state is State.CONNECTING:
        data = await stream.receive()
        protocol.receive_data(data) if data else protocol.receive_eof()
        if protocol.handshake_exc is not None:
            return None
        if not data:
            return None
    return [event for event in protocol.events_received() if isinstance(event, Frame)]


async def _inward(
    receive: Receive, protocol: ClientProtocol, stream: PortStream, used: Callable[[], Awaitable[None]]
) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code") or 1001
            protocol.send_close(code if code in _CLOSE_CODES and code not in (1005, 1006, 1015) else 1001)
            await _flush(protocol, stream)
            return
        if (text := message.get("text")) is not None:
            protocol.send_text(text.encode())
        else:
            protocol.send_binary(message.get("bytes") or b"")
        await _flush(protocol, stream)
        await used()


async def _outward(protocol: ClientProtocol, stream: PortStream, send: Send, frames: list[Frame]) -> None:
    parts: list[bytes] = []
    opcode = Opcode.BINARY
    size = 0
    while True:
        for frame in frames:
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                parts, opcode, size = [], frame.opcode, 0
            elif frame.opcode is not Opcode.CONT:
                continue
            parts.append(bytes(frame.data))
            size += len(frame.data)
            if size > LARGEST:
                await send({"type": "websocket.close", "code": 1009})
                return
            if frame.fin:
                whole = b"".join(parts)
                kept = {"text": whole.decode("utf-8", "replace")} if opcode is Opcode.TEXT else {"bytes": whole}
                await send({"type": "websocket.send", **kept})
        await _flush(protocol, stream)
        if protocol.state is not State.OPEN:
            break
        data = await stream.receive()
        protocol.receive_data(data) if data else protocol.receive_eof()
        frames = [event for event in protocol.events_received() if isinstance(event, Frame)]
        if not data and not frames:
            break
    code = protocol.close_code or 1006
    await send({"type": "websocket.close", "code": code if code not in (1005, 1006, 1015) else 1001})


async def _flush(protocol: ClientProtocol, stream: PortStream) -> None:
    for data in protocol.data_to_send():
        if data:
            await stream.send(data)
        else:
            await stream.finish()


async def _both(inward: Awaitable[None], outward: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(inward), asyncio.ensure_future(outward)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
