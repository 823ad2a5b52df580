"""The connected agents of all sites: who may connect, who is connected, and what was last heard of each.

An agent proves that it has the key of its site (`proving`). One connection per site is used. When another comes
with the same key, from the same process it takes the place of the first, which must be dead; from another process
it has to wait until the first is known to be dead, because two machines with one key would run everything twice.
Which machine it is was written down when it joined, so that a copied key is of no use elsewhere.

Whatever changes what is known of a site's agent (it is revoked, joins anew, is removed) cuts its connection at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import SiteUnavailable

from .linking import CallFailed, Channel, Link, LinkLost
from .messages import PROTOCOL, text
from .proving import AgentIdentity, Proof, verify

log = logging.getLogger(__name__)

GREETING_SECONDS = 10.0
STILL_THERE_SECONDS = 3.0
"""Seconds in which the first of two agents with one key must answer to keep its place."""
CERTAIN_SECONDS = 2.0
"""An offset of clocks below this is not distinguished from the time that messages take."""


class Refusal(NamedTuple):
    """Somebody who was refused though the key was right."""

    at: str
    address: str
    why: str


@dataclass(slots=True)
class Contact:
    """What was last heard of the agent of one site."""

    link: Link | None = None
    address: str = ""
    version: str = ""
    session: str = ""
    heard_at: datetime | None = None
    """When it was last heard, where it is not connected."""
    connected_at: datetime | None = None
    refusal: Refusal | None = None
    connections: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    listeners: set[Callable[[], None]] = field(default_factory=set)

    @property
    def last_heard(self) -> datetime | None:
        """When it was last heard."""
        if self.link is None:
            return self.heard_at
        return datetime.fromtimestamp(time.time() - (time.monotonic() - self.link.heard_at), tz=utcnow().tzinfo)

    @property
    def clock_offset(self) -> float:
        """Whole seconds that its clock is ahead of ours; 0 while that is not certain."""
        offset = self.link.clock_offset if self.link else None
        return 0.0 if offset is None or abs(offset) < CERTAIN_SECONDS else float(round(offset))

    def to_json(self) -> dict[str, Any]:
        """For people and programs."""
        link = self.link
        heard = self.last_heard
        return {
            "connected": link is not None,
            "address": self.address or None,
            "version": self.version or None,
            "lastContact": timestamp(heard) if heard else None,
            "connectedAt": timestamp(self.connected_at) if link and self.connected_at else None,
            "roundTripSeconds": None if link is None or link.round_trip is None else round(link.round_trip, 6),
            "clockOffsetSeconds": None if link is None or link.clock_offset is None else round(link.clock_offset, 3),
            "connections": self.connections,
            "refused": self.refusal._asdict() if self.refusal else None,
        }

    def notify(self) -> None:
        """It came or went."""
        self.changed.set()
        self.changed = asyncio.Event()
        for listener in list(self.listeners):
            listener()


class AgentHub:
    """Accepts connections of agents, and finds the one of a site."""

    def __init__(self, identify: Callable[[str], AgentIdentity | None], *, version: str = "") -> None:
        """`identify` answers with what is known of the agent of a site; None: there is none, or it was revoked."""
        self._identify, self._version = identify, version
        self._contacts: dict[str, Contact] = {}
        self.accepting: Callable[[], bool] = lambda: True
        """Whether agents are wanted here: only the control plane that leads works with them."""

    def contact(self, site: str) -> Contact:
        """What is known of the agent of a site."""
        return self._contacts.setdefault(site, Contact())

    def changed(self, site: str) -> None:
        """What is known of the agent of a site is another: whoever is connected must prove itself again."""
        contact = self._contacts.get(site)
        if contact is not None and contact.link is not None:
            contact.link.cut("The agent was revoked, or has joined anew.")

    def forget(self, site: str) -> None:
        """There is no such site any more."""
        self.changed(site)
        self._contacts.pop(site, None)

    def close(self) -> None:
        """End all connections."""
        for contact in self._contacts.values():
            if contact.link is not None:
                contact.link.cut("The control plane stops.")

    async def serve(self, channel: Channel, address: str) -> None:
        """One connection, from its first word to its end."""
        link = Link(channel, opens=True)
        running = asyncio.create_task(self._run(link), name="agent link")
        try:
            await self._admit(link, address, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _run(self, link: Link) -> None:
        try:
            await link.run()
        except LinkLost as error:
            log.info("connection of an agent ended", extra={"why": error.message})

    async def _admit(self, link: Link, address: str, running: asyncio.Task[None]) -> None:
        nonce = secrets.token_hex(32)
        link.greet({"protocol": PROTOCOL, "nonce": nonce, "version": self._version})
        try:
            said = await link.greeting(GREETING_SECONDS)
        except (LinkLost, CallFailed):
            return
        site, machine, session = (text(said.get(name), 253) for name in ("site", "machine", "session"))
        proof = Proof(site, machine, session, nonce)
        why = await self._refusal(proof, said, address)
        if why:
            log.warning("agent refused", extra={"site": proof.site, "address": address, "why": why["message"]})
            link.greet(why, refused=True)
            await asyncio.wait([running], timeout=1.0)  # the refusal is read, and the other side hangs up
            return
        contact = self.contact(proof.site)
        contact.link, contact.session, contact.address = link, proof.session, address
        contact.version, contact.connected_at = text(said.get("version"), 50), utcnow()
        contact.connections += 1
        link.greet({"accepted": True, "site": proof.site})
        log.info("agent connected", extra={"site": proof.site, "address": address})
        contact.notify()
        try:
            await running
        finally:
            if contact.link is link:
                contact.heard_at = contact.last_heard
                contact.link = None
                contact.notify()
            log.info("agent disconnected", extra={"site": proof.site})

    async def _refusal(self, proof: Proof, said: dict[str, Any], address: str) -> dict[str, Any] | None:
        """Why it may not connect; None: it may."""
        if said.get("protocol") != PROTOCOL:
            return _no("Version", f"This control plane speaks version {PROTOCOL} of the protocol of agents; upgrade.")
        if not self.accepting():
            return _no("NotLeading", "This control plane does not lead; try another replica, or later.")
        known = self._identify(proof.site)
        if known is None or not verify(known.key, proof, text(said.get("signature"), 200)):
            # One answer for all: a stranger learns nothing about which sites there are.
            return _no("Unknown", "The key is unknown or revoked. Join again with a new invitation.")
        if known.machine != proof.machine:
            return self._report(proof.site, address, "it is another machine, or another folder, with the same key")
        contact = self.contact(proof.site)
        first = contact.link
        if first is not None and contact.session != proof.session and await first.ping(STILL_THERE_SECONDS):
            return self._report(proof.site, address, f"an agent with the same key is connected from {contact.address}")
        if first is not None:
            first.cut("Its agent has connected anew.")
            while contact.link is first:
                await contact.changed.wait()
        again = self._identify(proof.site)
        if again != known or contact.link is not None:
            return _no("Changed", "Another agent joined or connected at the same moment; try again.")
        return None

    def _report(self, site: str, address: str, why: str) -> dict[str, Any]:
        contact = self.contact(site)
        contact.refusal = Refusal(timestamp(utcnow()), address, why)
        contact.notify()
        return _no("SecondMachine", f"Refused: {why}. Every machine needs an invitation of its own.")


def _no(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


def link_of(contact: Contact, site: str, *, joined: bool = True) -> Link:
    """The connection to the agent of a site; raises SiteUnavailable."""
    if contact.link is not None and contact.link.alive:
        return contact.link
    if not joined:
        raise SiteUnavailable(
            f"No machine has joined as site {site} yet. Run there what `isthmus agents invite --name {site}` prints."
        )
    heard = contact.last_heard
    since = f"was last heard {ago(heard, utcnow())}" if heard else "has not connected since the control plane started"
    raise SiteUnavailable(f"The agent of site {site} is not connected; it {since}. What runs there goes on.")


def ago(then: datetime, now: datetime) -> str:
    """How long ago, so roughly that it seldom changes: a site's status is written when it does."""
    seconds = max(0, int((now - then).total_seconds()))
    if seconds < 60:
        return "less than a minute ago"
    for unit, size, up_to in (("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < up_to:
            return f"{seconds // size} {unit} ago"
    return f"{seconds // 86_400} days ago"
