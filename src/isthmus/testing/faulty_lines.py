"""A line to an API server that tests can disturb."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import yaml


class FaultyLine:
    """A line to a server: it can be cut, or fall silent with its connections open."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("https://").partition(":")
        self._there = host, int(port)
        self._streams: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0

    async def __aenter__(self) -> FaultyLine:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._flowing.set()
        self.cut()
        self._server.close()

    def kubeconfig(self, source: Path, path: Path) -> Path:
        """Write a kubeconfig that leads to the server by this line."""
        config = yaml.safe_load(source.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path.write_text(yaml.safe_dump(config))
        return path

    def cut(self) -> None:
        """End all connections, as a proxy does that is restarted."""
        for stream in self._streams:
            stream.transport.abort()

    def hush(self) -> None:
        """Let nothing more through; nobody is notified."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything through again: connections that were silent are dead by now."""
        self.cut()
        self._flowing.set()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(*self._there)
        except OSError:
            writer.transport.abort()
            return
        self._streams |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        self._streams -= {writer, back}

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flowing.wait()
                target.write(data)
                await target.drain()
        target.transport.abort()
