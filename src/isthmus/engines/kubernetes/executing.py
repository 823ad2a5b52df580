"""Small programs in running containers, over a websocket: bytes in, bytes out, and how it ended.

The protocol (`v4.channel.k8s.io`) puts one byte before each message that says which stream it is of, and cannot close
the input alone: a program that reads input is given its length beforehand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from urllib.parse import urlencode

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from isthmus.errors import EngineRefused, NotFound, SiteUnavailable
from isthmus.kubernetes.client import KubernetesClient

STDIN, STDOUT, STDERR, STATUS = range(4)
_PROTOCOL = Subprotocol("v4.channel.k8s.io")
Take = Callable[[bytes], Awaitable[None]]


async def execute(
    client: KubernetesClient,
    path: str,
    container: str,
    command: Sequence[str],
    *,
    send: AsyncIterator[bytes] | None = None,
    take: Take | None = None,
) -> None:
    """Run a program in a container of the pod at `path`; raises EngineRefused if it fails, with what it said."""
    words = [("container", container), ("stdout", "1"), ("stderr", "1"), *(("command", word) for word in command)]
    if send is not None:
        words.append(("stdin", "1"))
    url = f"wss{client.access.url.removeprefix('https')}{path}/exec?{urlencode(words)}"
    client.count("POST", f"{path}/exec")
    try:
        async with connect(
            url,
            ssl=client.access.context,
            subprotocols=[_PROTOCOL],
            additional_headers=await client.access.headers(),
            compression=None,
            max_size=None,
            proxy=None,
            open_timeout=30,
        ) as socket:
            sending = asyncio.create_task(_send(socket, send)) if send is not None else None
            try:
                await _receive(socket, take)
            finally:
                if sending is not None:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
    except InvalidStatus as error:
        said = error.response.body[:300].decode("utf-8", "replace") if error.response.body else ""
        if error.response.status_code == 404:
            raise NotFound(f"there is no such container any more: {said}") from None
        raise SiteUnavailable(f"no program could be run in the pod: {error}: {said}") from None
    except (WebSocketException, OSError, TimeoutError) as error:
        raise SiteUnavailable(f"the connection into the pod broke: {error}") from error


async def _send(socket: ClientConnection, parts: AsyncIterator[bytes]) -> None:
    async for part in parts:
        await socket.send(bytes([STDIN]) + part)


async def _receive(socket: ClientConnection, take: Take | None) -> None:
    """Read until the status comes; raises what it says."""
    errors = b""
    async for message in socket:
        data = message if isinstance(message, bytes) else message.encode()
        channel, content = data[0] if data else -1, data[1:]
        if channel == STDOUT and take is not None:
            await take(content)
        elif channel == STDERR:
            errors = (errors + content)[-2000:]
        elif channel == STATUS:
            status = orjson.loads(content)
            if status.get("status") == "Success":
                return
            reported = errors.decode("utf-8", "replace").strip() or status.get("message", "no reason given")
            raise EngineRefused(f"a program in the pod failed: {reported}")
    raise SiteUnavailable("the connection into the pod ended before the program did")
