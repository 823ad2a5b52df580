"""A home in a real API server, the platform's own account there, and a line to it that can be disturbed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kubernetes import kubeconfigs
from isthmus.lab.kubernetes.control_plane import ControlPlane
from isthmus.server.installing import install
from isthmus.server.manifests import rights
from isthmus.testing.kubernetes_home import calling, emptied


@pytest.fixture
def admin(kubernetes_api: ControlPlane) -> Path:
    """A kubeconfig that may do everything, on a home without objects."""
    asyncio.run(emptied(kubernetes_api.kubeconfig))
    return kubernetes_api.kubeconfig


@pytest.fixture
def operator(admin: Path, tmp_path: Path) -> Path:
    """A kubeconfig of the platform's own account, with the rights that are installed and no others."""
    asyncio.run(install(kubeconfigs.load(admin), rights()))
    config = yaml.safe_load(admin.read_text())
    config["users"][0]["user"] = {"token": asyncio.run(_token(admin))}
    path = tmp_path / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _token(admin: Path) -> str:
    async with calling(admin) as api:
        path = "/api/v1/namespaces/isthmus-system/serviceaccounts/isthmus/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str((await api.send("POST", path, "a token", body))["status"]["token"])


class Line:
    """A line to a server: it can be cut, or fall silent with its connections open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0

    async def __aenter__(self) -> Line:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._flowing.set()
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """End all connections, as a proxy does that is restarted."""
        for stream in self._streams:
            stream.transport.abort()

    def hush(self) -> None:
        """Let nothing more through; nobody is told."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything through again: connections that were silent are dead by now."""
        self.cut()
        self._flowing.set()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
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


@pytest.fixture
async def line(kubernetes_api: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[Line, str]]:
    """A line, and the location of the store at its end."""
    await emptied(kubernetes_api.kubeconfig)
    port = int(kubernetes_api.url.rpartition(":")[2])
    async with Line(port) as made:
        config: Any = yaml.safe_load(kubernetes_api.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{made.port}"
        path = tmp_path / "line.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        yield made, f"kubernetes:{path}"
