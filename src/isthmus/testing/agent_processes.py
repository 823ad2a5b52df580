"""A hub that listens, and agents as processes of their own that join it, to be cut off and killed by tests."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn

from isthmus.agent.places import AgentPlace, Membership
from isthmus.api import enrolling
from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.frames import LARGEST
from isthmus.engines.agent.proving import AgentIdentity, new_key, public_of
from isthmus.engines.local.switching_off import end_runs
from isthmus.server import certificates
from isthmus.server.listening import Listener

from .servers import LoggedProcess, free_port


class AgentMachine(LoggedProcess):
    """A machine that joins by the command line, as a person would have it."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.place = AgentPlace(data)

    def join(self, invited: Mapping[str, str], authority: str | None = None) -> subprocess.CompletedProcess[str]:
        """Join with what `isthmus agents invite -o json` wrote."""
        words = ["agent", "join", invited["url"], invited["invitation"]]
        words += ["--authority", authority or invited["authority"], "--data", str(self.place.data)]
        words = [sys.executable, "-m", "isthmus.cli", *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    def start(self) -> None:
        """Start its agent."""
        words = [sys.executable, "-m", "isthmus.cli", "agent", "run", "--data", str(self.place.data)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def clean(self) -> None:
        """End it, what runs there, and the keeper."""
        if self.process is not None:
            self.stop()
            asyncio.run(end_runs(self.place.runs))


class AgentProcess(AgentMachine):
    """A machine that has joined the hub at a port."""

    def __init__(self, data: Path, site: str = "edge", *, port: int | None = None) -> None:
        super().__init__(data)
        self.site, self.port = site, port or free_port()
        self.place.make()
        self.tls = data / "control-plane"
        authority = certificates.own(self.tls, "127.0.0.1").authority
        assert authority is not None
        key = new_key()[0]
        self.identity = AgentIdentity(site, public_of(key), self.place.machine(new=True))
        self.place.keep(Membership(f"https://127.0.0.1:{self.port}", site, authority.decode()), key)


class Relay:
    """A cable between agent and hub that can be cut: what is on its way is lost, and nobody is notified."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._up = asyncio.Event()
        self._up.set()
        self.allowance: int | None = None
        """Bytes towards the hub after which the cable breaks; None: any number."""

    async def start(self) -> None:
        """Begin."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def close(self) -> None:
        """End."""
        self._up.set()
        self.hang_up()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """Nothing passes any more, and connections stay half open."""
        self._up.clear()

    def mend(self) -> None:
        """New connections pass; those that were cut never do again."""
        self.hang_up()
        self._up.set()

    def hang_up(self) -> None:
        """Break all connections, so that both sides notice."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._up.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(back)
            await asyncio.gather(
                self._pump(reader, back, counted=True), self._pump(there, writer), return_exceptions=True
            )
            self._open.discard(back)
            back.transport.abort()
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, counted: bool = False) -> None:
        while data := await source.read(65536):
            await self._up.wait()
            if counted and self.allowance is not None:
                self.allowance -= len(data)
                if self.allowance <= 0:
                    self.allowance = None
                    self.hang_up()
                    return
            target.write(data)
            await target.drain()
        target.transport.abort()


@asynccontextmanager
async def listening(hub: AgentHub, tls: Path, port: int) -> AsyncIterator[None]:
    """The hub behind TLS at a port, as the control plane has it."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        serve = enrolling.socket(SimpleNamespace(agents=hub), scope["path"])  # type: ignore[arg-type]
        assert serve is not None
        await serve(scope, receive, send)

    config = uvicorn.Config(
        app, loop="none", http="httptools", ws="websockets-sansio", lifespan="off", log_config=None,
        ws_max_size=LARGEST, ws_ping_interval=None, ws_per_message_deflate=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = Listener(config, certificates.own(tls, "127.0.0.1").context, plain=False, stopping=hub.close)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    listener.setblocking(False)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="hub")
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def connected(hub: AgentHub, site: str, seconds: float = 60.0) -> None:
    """Wait until the agent of a site is connected."""
    async with asyncio.timeout(seconds):
        while hub.contact(site).link is None:
            await hub.contact(site).changed.wait()
