"""The HTTP proxy between the machines of a lab and the control plane, as a process of its own.

It connects to the control plane and to nothing else. Where the kernel has no `netem` it makes links slow, far and
lossy as well: each direction of a connection is a queue whose pieces leave when they would have arrived. A lost
packet costs what TCP makes of it, a pause before it is sent again, and what is behind it waits.

`python -m isthmus.lab.agents.link_proxy FOLDER`
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from pathlib import Path

from .layout import AgentsLabPlace
from .shapes import LinkShape, parse_shape

_PIECE = 16 * 1024
_PACKET = 1460
_RETRY_SECONDS = 0.2
_HEAD_SECONDS = 30.0


class LinkProxy:
    """Serves one lab."""

    def __init__(self, place: AgentsLabPlace) -> None:
        self._place = place
        self._shapes: dict[str, tuple[int, LinkShape]] = {}

    async def serve(self) -> None:
        """Until it is ended."""
        server = await asyncio.start_server(self._accept, self._place.address(1), self._place.port(0))
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            words = head.split(b"\r\n")[0].split()
            target = self._place.target.read_text().strip()
            if len(words) != 3 or words[0] != b"CONNECT" or words[1].decode("latin-1") != target:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            there, back = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            address = str(writer.get_extra_info("peername")[0])
            await asyncio.gather(self._pump(reader, back, address), self._pump(there, writer, address))
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass  # either side is gone, or it speaks no HTTP
        finally:
            for one in (writer, back):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, address: str) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        leaving = asyncio.create_task(_leave(queue, target), name="link")
        clock, free, last = asyncio.get_running_loop().time, 0.0, 0.0
        try:
            while data := await source.read(_PIECE):
                shape = self._shape(address)
                free = max(free, clock()) + (len(data) * 8 / shape.rate if shape.rate else 0.0)
                last = max(last, free + shape.latency + _lost(len(data), shape.loss))
                await queue.put((last, data))
            await queue.put((last, b""))
            await leaving
        finally:
            leaving.cancel()
            target.close()

    def _shape(self, address: str) -> LinkShape:
        file = self._place.shape(address)
        try:
            changed = file.stat().st_mtime_ns
            known = self._shapes.get(address)
            if known is None or known[0] != changed:
                known = self._shapes[address] = (changed, parse_shape(file.read_text()))
            return known[1]
        except FileNotFoundError:
            return LinkShape()


async def _leave(queue: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        at, data = await queue.get()
        if (pause := at - clock()) > 0:
            await asyncio.sleep(pause)
        if not data:
            return
        target.write(data)
        await target.drain()


def _lost(size: int, loss: float) -> float:
    """Seconds that lost packets of a piece cost."""
    lost = sum(random.random() < loss for _ in range(-(-size // _PACKET))) if loss else 0  # noqa: S311 - weather
    return lost * _RETRY_SECONDS


def main() -> None:
    """The process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(LinkProxy(AgentsLabPlace.of(Path(sys.argv[1]))).serve())


if __name__ == "__main__":
    main()
