"""Providers: all that are known, with their keys in memory, so that a token is checked without asking anybody.

A feed follows the IdentityProviders. Their keys are fetched every few minutes; one that a token names and that is not
known is looked for at once, but at most twice a minute. A provider that is away, slow or answers rubbish keeps the keys
that it had, for a day; its tokens alone are refused without any.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from isthmus._kit.tasks import Supervised
from isthmus.errors import IsthmusError, Unauthenticated
from isthmus.metrics import count_task_failure
from isthmus.resources.identityproviders import IdentityProvider
from isthmus.resources.kinds import IDENTITY_PROVIDER
from isthmus.store.base import Change, EventType, Page, Record, Store
from isthmus.store.feeding import Feed

from .claims import Person, person_of
from .provider_calls import fetch_keys
from .verifying import SigningKey, issuer_in, key_for, read_keys, verify

log = logging.getLogger(__name__)

FRESH_SECONDS = 300.0
"""Between two looks at a provider's keys."""
KEPT_SECONDS = 86_400.0
"""For which keys serve while the provider cannot be asked."""
PAUSE_SECONDS = 30.0
"""Between two looks that a token asks for."""


@dataclass(slots=True)
class KnownProvider:
    """A provider, and what is known of it."""

    provider: IdentityProvider
    keys: Sequence[SigningKey] = ()
    fetched: float = float("-inf")
    tried: float = float("-inf")
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class Providers:
    """Every provider."""

    def __init__(self, store: Store, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`changed` is called when a token may mean something else than before."""
        self._changed, self._clock = changed, clock
        self._known: dict[str, KnownProvider] = {}
        self._feed = Feed(store, IDENTITY_PROVIDER, replace=self._replace, change=self._change)
        self._wake = asyncio.Event()
        self._task = Supervised("keys of identity providers", self._keep_fresh, failed=count_task_failure)

    async def start(self) -> None:
        """Learn all providers, then follow them and their keys."""
        await self._feed.start()
        self._task.start()

    async def close(self) -> None:
        """Stop following."""
        await self._task.stop()
        await self._feed.close()

    async def reached(self, version: int) -> None:
        """Wait a moment until a change has taken effect here."""
        await self._feed.reached(version, 2.0)

    def offered(self) -> list[IdentityProvider]:
        """Those that people may sign in with."""
        return [known.provider for known in self._known.values() if not known.provider.spec.disabled]

    def recognise(self, token: str) -> tuple[str, Person, float]:
        """The provider of a token, whom it names, and until when in seconds of the epoch; raises Unauthenticated."""
        known = self._of(token)
        if not self._serving(known):
            raise Unauthenticated(
                f"provider {known.provider.name} cannot be asked at present, so that its tokens cannot be checked; "
                "sign in otherwise or try again"
            )
        claims = verify(token, known.provider, known.keys)
        return known.provider.name, person_of(known.provider, claims), float(claims["exp"])

    async def learn(self, token: str) -> bool:
        """Whether something was learned that may make a token good: a key that was not known, or any at all."""
        try:
            known = self._of(token)
        except Unauthenticated:
            return False
        if self._serving(known) and key_for(token, known.keys):
            return False
        before = known.keys
        await self._refresh(known, PAUSE_SECONDS)
        return known.keys is not before

    def _of(self, token: str) -> KnownProvider:
        issuer = issuer_in(token)
        for known in self._known.values():
            if issuer is not None and known.provider.spec.issuer == issuer and not known.provider.spec.disabled:
                return known
        raise Unauthenticated("the token is of no identity provider that is known here; sign in with `isthmus login`")

    def _serving(self, known: KnownProvider) -> bool:
        return bool(known.keys) and self._clock() - known.fetched < KEPT_SECONDS

    async def _keep_fresh(self) -> None:
        while True:
            self._wake.clear()
            await asyncio.gather(*(self._refresh(known, FRESH_SECONDS) for known in list(self._known.values())))
            try:
                async with asyncio.timeout(PAUSE_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self, known: KnownProvider, pause: float) -> None:
        """Fetch the keys, unless that was tried a moment ago; those who come meanwhile wait for the same answer."""
        async with known.busy:
            if self._clock() - known.tried < (pause if known.keys else min(pause, PAUSE_SECONDS)):
                return
            known.tried = self._clock()
            spec = known.provider.spec
            try:
                keys = read_keys(await fetch_keys(spec))
            except (IsthmusError, ValueError) as error:
                log.warning(
                    "keys of an identity provider were not fetched",
                    extra={"provider": known.provider.name, "error": str(error)},
                )
                return
            known.fetched = self._clock()
            if [(k.id, k.algorithms, _text(k)) for k in keys] != [(k.id, k.algorithms, _text(k)) for k in known.keys]:
                known.keys = keys
                self._changed()

    def _replace(self, page: Page) -> None:
        self._known = {r.key.name: found for r in page.records if (found := self._read(r)) is not None}
        self._wake.set()
        self._changed()

    def _change(self, change: Change) -> None:
        if change.record is None:
            return
        name = change.record.key.name
        found = None if change.type is EventType.DELETED else self._read(change.record)
        if found is None:
            self._known.pop(name, None)
        else:
            self._known[name] = found
        self._wake.set()
        self._changed()

    def _read(self, record: Record) -> KnownProvider | None:
        try:
            provider = IdentityProvider.model_validate(record.obj)
        except ValueError as error:
            log.warning("an identity provider cannot be read", extra={"key": str(record.key), "error": repr(error)})
            return None
        before = self._known.get(record.key.name)
        if before is not None and _asked_alike(before.provider, provider):
            before.provider = provider
            return before
        return KnownProvider(provider)


def _asked_alike(one: IdentityProvider, other: IdentityProvider) -> bool:
    """Whether what was fetched of one is true of the other."""
    return (one.spec.issuer, one.spec.authorities) == (other.spec.issuer, other.spec.authorities)


def _text(key: SigningKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    found: bytes = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
