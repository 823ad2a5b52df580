"""Authenticator: from an Authorization header to a Caller, without asking the store.

Two feeds keep an index of all tokens (by name; several tenants may use the same name) and of the tenants with
their members. Because the index follows the store's watch, a token that is revoked or deleted, or a member who is
taken out, is refused within milliseconds, on every replica. Results are cached by header; the cache is emptied
whenever a right changes, and an entry never outlives the token's expiry, also while the store is away.

Streams register with `following`, so that they end when the credential they were opened with loses its meaning.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from isthmus._kit.clock import parse_timestamp
from isthmus.errors import Unauthenticated
from isthmus.resources.kinds import TENANT, TOKEN
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Role
from isthmus.resources.tokens import hash_secret, split_secret
from isthmus.store.base import Change, EventType, Key, Page, Record, Store
from isthmus.store.feeding import Feed

from .callers import Caller

log = logging.getLogger(__name__)

_CACHE_SIZE = 20_000
_NEVER = float("inf")
K = TypeVar("K")
_REMEDY = "sign in with `isthmus login`, or ask for a new token"


@dataclass(frozen=True, slots=True)
class KnownToken:
    """What the index keeps of a token."""

    key: Key
    user: str
    role: Role | None
    sha256: str
    expires: float
    revoked: bool


@dataclass(frozen=True, slots=True)
class KnownTenant:
    """What the index keeps of a tenant."""

    name: str
    members: Mapping[str, Role]
    suspended: bool
    terminating: bool
    priority: int | None = None
    """The highest priority of its jobs, where its quota says."""


class Authenticator:
    """Knows every token and every member."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: dict[str, dict[Key, KnownToken]] = {}
        self._tenants: dict[str, KnownTenant] = {}
        self._cache: dict[bytes, tuple[Caller, float]] = {}
        self._followers: dict[object, Callable[[], None]] = {}
        self._feeds = {
            TENANT.name: Feed(store, TENANT, replace=self._replace_tenants, change=self._change_tenant),
            TOKEN.name: Feed(store, TOKEN, replace=self._replace_tokens, change=self._change_token),
        }

    async def start(self) -> None:
        """Learn all tokens and members, then follow their changes."""
        try:
            for feed in self._feeds.values():
                await feed.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop following."""
        for feed in self._feeds.values():
            await feed.close()

    def authenticate(self, header: bytes | None) -> Caller:
        """Who presents this Authorization header; raises Unauthenticated."""
        hit = self._cache.get(header) if header is not None else None
        if hit is not None and hit[1] > self._clock():
            return hit[0]
        if header is None:
            raise Unauthenticated(f"the request carries no token; {_REMEDY}")
        caller, expires = self._resolve(header)
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[header] = (caller, expires)
        return caller

    def remembers(self, header: bytes | None) -> bool:
        """Whether a header was good a moment ago, so that nothing is given away by taking it again."""
        return header in self._cache

    @staticmethod
    def name_in(header: bytes) -> str:
        """The name of the token that a header claims to be."""
        parts = split_secret(_presented(header))
        return parts[0] if parts else ""

    def knows(self, name: str) -> bool:
        """Whether there is a token of this name."""
        return name in self._tokens

    def tenant(self, name: str) -> KnownTenant | None:
        """The tenant as last seen."""
        return self._tenants.get(name)

    async def caught_up(self, kind: str, version: int) -> None:
        """Wait a moment until a change of a token or tenant has taken effect here."""
        if feed := self._feeds.get(kind):
            await feed.reached(version, 2.0)

    @contextmanager
    def following(self, header: bytes | None, caller: Caller, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` as soon as the header no longer gives exactly this caller: revoked, expired, other rights."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def check() -> None:
            nonlocal timer
            try:
                same = self.authenticate(header) == caller
            except Unauthenticated:
                same = False
            if not same:
                end()
            elif (expires := self._cache.get(header or b"", (caller, _NEVER))[1]) < _NEVER:
                if timer is not None:
                    timer.cancel()
                # Never sleeps longer than a minute, because the wall clock may jump.
                timer = loop.call_later(min(max(expires - self._clock(), 0.01), 60.0), check)

        held = object()
        self._followers[held] = check
        try:
            check()
            yield
        finally:
            del self._followers[held]
            if timer is not None:
                timer.cancel()

    def _resolve(self, header: bytes) -> tuple[Caller, float]:
        parts = split_secret(_presented(header))
        if parts is None:
            raise Unauthenticated(f"the Authorization header is not of the form `Bearer ist_…`; {_REMEDY}")
        name, digest = parts[0], hash_secret(parts[1])
        found: KnownToken | None = None
        for token in self._tokens.get(name, {}).values():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None or found.revoked or found.expires <= self._clock():
            # One answer for all three: a stranger learns nothing about which tokens there were.
            raise Unauthenticated(f"the token is unknown, expired or revoked; {_REMEDY}")
        return self._caller(found), found.expires

    def _caller(self, token: KnownToken) -> Caller:
        namespace = token.key.namespace
        if namespace != SYSTEM_NAMESPACE:
            if namespace not in self._tenants or token.role is None:
                raise Unauthenticated(f"the token belongs to no tenant; {_REMEDY}")
            return Caller(token.user, {namespace: token.role}, None, token.key.name)
        if token.role is not None:
            return Caller(token.user, {}, token.role, token.key.name, personal=True)
        grants = {name: role for name, known in self._tenants.items() if (role := known.members.get(token.user))}
        return Caller(token.user, grants, None, token.key.name, personal=True)

    def _replace_tokens(self, page: Page) -> None:
        self._tokens = {}
        for record in page.records:
            if known := _readable(_known_token, record):
                self._tokens.setdefault(record.key.name, {})[record.key] = known
        self._rights_changed()

    def _change_token(self, change: Change) -> None:
        if change.record is None:
            return
        key = change.record.key
        known = None if change.type is EventType.DELETED else _readable(_known_token, change.record)
        if known is None:
            self._tokens.get(key.name, {}).pop(key, None)
            if not self._tokens.get(key.name):
                self._tokens.pop(key.name, None)
        else:
            if self._tokens.get(key.name, {}).get(key) == known:
                return
            self._tokens.setdefault(key.name, {})[key] = known
        self._rights_changed()

    def _replace_tenants(self, page: Page) -> None:
        found = (_readable(_known_tenant, record) for record in page.records)
        self._tenants = {known.name: known for known in found if known is not None}
        self._rights_changed()

    def _change_tenant(self, change: Change) -> None:
        if change.record is None:
            return
        name = change.record.key.name
        known, before = None, self._tenants.get(name)
        if change.type is not EventType.DELETED:
            known = _readable(_known_tenant, change.record)
        if known is None:
            self._tenants.pop(name, None)
        else:
            self._tenants[name] = known
            if before is not None and before.members == known.members:
                return
        self._rights_changed()

    def _rights_changed(self) -> None:
        self._cache.clear()
        for check in list(self._followers.values()):
            check()


def _presented(header: bytes) -> str:
    """The token in a header: a bearer token, or the password of basic authentication.

    kubectl sends bearer tokens over HTTPS only; over plain HTTP on the loopback the token travels in the
    kubeconfig's address (`http://isthmus:ist_…@localhost`), which arrives as a password.
    """
    scheme, _, rest = header.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode("latin-1").partition(":")[2]
    except binascii.Error:
        return ""


def _readable(read: Callable[[Record], K], record: Record) -> K | None:
    """What is known of an object. One that cannot be read gives nobody any right, and keeps no other from being read.

    Our API lets none pass; where a cluster is the store, others write too.
    """
    try:
        return read(record)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        log.warning("an object that gives rights cannot be read", extra={"key": str(record.key), "error": repr(error)})
        return None


def _known_token(record: Record) -> KnownToken:
    spec = record.obj["spec"]
    expires = spec.get("expiresAt")
    return KnownToken(
        key=record.key,
        user=spec["user"],
        role=Role(spec["role"]) if spec.get("role") else None,
        sha256=spec["sha256"],
        expires=parse_timestamp(expires).timestamp() if expires else _NEVER,
        revoked=bool(spec.get("revoked")) or "deletionTimestamp" in record.obj["metadata"],
    )


def _known_tenant(record: Record) -> KnownTenant:
    spec, metadata = record.obj.get("spec") or {}, record.obj["metadata"]
    return KnownTenant(
        name=record.key.name,
        members={member["user"]: Role(member.get("role", Role.MEMBER)) for member in spec.get("members") or ()},
        suspended=bool(spec.get("suspended")),
        terminating="deletionTimestamp" in metadata,
        priority=(spec.get("quota") or {}).get("priority"),
    )
