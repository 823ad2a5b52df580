"""The connection to the control plane, made again after every break.

One WebSocket over TLS, trusted by the authority that was pinned when the machine joined. The pause before another
attempt doubles up to `LONGEST_PAUSE` and is drawn at random, so that a thousand agents do not come back at one
moment. The dates of the certificate are not looked at: the authority is pinned, and the clock of a small machine
may be wrong by years.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

import isthmus
from isthmus.engines.agent.contacts import GREETING_SECONDS
from isthmus.engines.agent.frames import LARGEST
from isthmus.engines.agent.linking import AgentCall, CallFailed, Link, LinkLost
from isthmus.engines.agent.messages import PROTOCOL, text
from isthmus.engines.agent.proving import Proof, sign

from .places import Membership

log = logging.getLogger(__name__)

PATH = "/agents/connect"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds before another attempt, at first and at most; up to as many are waited, by chance."""
CONNECT_SECONDS = 15.0
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which Python has no name."""
_NOTSENT_LOWAT, _UNSENT = 25, 128 * 1024
"""TCP_NOTSENT_LOWAT: what the kernel holds unsent is what a control message waits for."""


def pinned(authority: str) -> ssl.SSLContext:
    """TLS that trusts this authority and no other; raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    return context


class SocketChannel:
    """A WebSocket as a channel."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        """Hand one over."""
        try:
            await self._socket.send(message)
        except (WebSocketException, OSError) as error:
            raise LinkLost(f"The connection broke: {error}.") from None

    async def receive(self) -> bytes:
        """The next one."""
        try:
            message = await self._socket.recv()
        except (WebSocketException, OSError) as error:
            raise LinkLost(f"The connection broke: {error}.") from None
        return message if isinstance(message, bytes) else message.encode()

    async def close(self) -> None:
        """End it."""
        await self._socket.close()


class Connector:
    """Keeps the connection of one agent."""

    def __init__(
        self,
        membership: Membership,
        key: str,
        machine: str,
        answer: Callable[[AgentCall], Awaitable[None]],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        """`answer` handles a call; `ended` is awaited after each connection, before the next is made."""
        self._membership, self._key, self._machine = membership, key, machine
        self._answer, self._ended = answer, ended
        self._session = secrets.token_hex(16)
        self._tls = pinned(membership.authority)
        self.connected = asyncio.Event()
        """Set while the control plane has accepted the connection."""

    async def run(self) -> None:
        """Connect, again and again."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._connect()
            except (OSError, TimeoutError, WebSocketException, LinkLost, CallFailed) as error:
                log.warning("not connected to the control plane", extra={"why": str(error) or type(error).__name__})
            finally:
                if self.connected.is_set():
                    pause = FIRST_PAUSE
                self.connected.clear()
                await self._ended()
            await asyncio.sleep(random.uniform(pause / 4, pause))  # noqa: S311 - to spread load, not to keep a secret
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connect(self) -> None:
        url = urlsplit(self._membership.url)._replace(scheme="wss", path=PATH).geturl()
        async with asyncio.timeout(CONNECT_SECONDS):
            channel = await connect(
                url, ssl=self._tls, proxy=self._membership.proxy or None, compression=None, max_size=LARGEST,
                ping_interval=None, open_timeout=None, close_timeout=2, user_agent_header=None,
            )  # fmt: skip
        raw = channel.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _UNSENT)
        link = Link(SocketChannel(channel), opens=False, serve=self._answer)
        running = asyncio.create_task(link.run(), name="link")
        try:
            await self._introduce(link)
            self.connected.set()
            log.info("connected to the control plane")
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _introduce(self, link: Link) -> None:
        said = await link.greeting(GREETING_SECONDS)
        proof = Proof(self._membership.site, self._machine, self._session, text(said.get("nonce"), 100))
        link.greet(
            {
                "protocol": PROTOCOL,
                "version": isthmus.__version__,
                "site": proof.site,
                "machine": proof.machine,
                "session": proof.session,
                "signature": sign(self._key, proof),
            }
        )
        await link.greeting(GREETING_SECONDS)
