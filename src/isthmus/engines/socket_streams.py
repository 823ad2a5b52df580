"""A connected socket as the stream that leads to a port of a run."""

from __future__ import annotations

import asyncio
import contextlib
import socket

CHUNK = 64 * 1024


class SocketStream:
    """Bytes both ways; what is not read, the other side does not send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, connected: socket.socket) -> SocketStream:
        """The stream of a socket, which belongs to it from now on."""
        connected.setblocking(False)
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(*await asyncio.open_connection(sock=connected, limit=CHUNK))

    async def receive(self) -> bytes:
        """What came; empty when nothing more will."""
        return await self._reader.read(CHUNK)

    async def send(self, data: bytes) -> None:
        """Hand bytes over, and wait until there is room for more."""
        self._writer.write(data)
        await self._writer.drain()

    async def finish(self) -> None:
        """Nothing more will be sent."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    async def close(self) -> None:
        """Let go, at once."""
        self._writer.transport.abort()
