"""Bare sockets in an event loop."""

from __future__ import annotations

import asyncio
import socket


async def readable(connection: socket.socket) -> None:
    """Return when there is something to read, or nothing more will come."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def now() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, now)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
