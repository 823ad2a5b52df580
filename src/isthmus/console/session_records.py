"""Which sessions go on: a record for each in the store, so that signing out ends it everywhere, for good.

The cookie alone signs nobody in. Its session must have a record, which is made at sign-in and removed at sign-out;
it survives restarts, and all replicas see the same. The record is a Lease (docs/design/0007): its name is a hash of the
session's random word, which cannot be turned back into a cookie, and its holder the name of the token. Records whose
time is over are removed whenever somebody signs in, and so is the oldest of a token that has too many.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus.errors import NotFound, Unavailable
from isthmus.resources.kinds import LEASE
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.store.base import Key, Query, Record, Store
from isthmus.store.moving import SESSIONS

from .sessions import SESSION_SECONDS

if TYPE_CHECKING:
    from starlette.types import Message, Receive

MOST_OF_A_TOKEN = 20
LOOK_SECONDS = 5.0
"""Between two looks whether the session of an open stream goes on."""


class SessionRecords:
    """The sessions that were begun and not ended."""

    def __init__(self, store: Store, now: Callable[[], datetime] = utcnow) -> None:
        self._store, self._now = store, now

    async def begin(self, word: str, token: str) -> None:
        """Somebody signed in with a token of this name."""
        await self._tidy(token)
        spec = {
            "holderIdentity": token,
            "leaseDurationSeconds": SESSION_SECONDS,
            "acquireTime": timestamp(self._now()),
        }
        key = _key(word)
        await self._store.create(LEASE, {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec})

    async def goes_on(self, word: str) -> bool:
        """Whether the session was begun and not ended. Its time limit is in the cookie."""
        try:
            await self._store.get(_key(word))
        except NotFound:
            return False
        return True

    async def end(self, word: str) -> None:
        """Somebody signed out."""
        with suppress(NotFound):
            await self._store.delete(_key(word))

    def while_it_goes_on(self, word: str, receive: Receive) -> Receive:
        """What a stream receives: also that the browser left, when it signed out elsewhere."""

        async def watched() -> Message:
            pending = asyncio.ensure_future(receive())
            try:
                while True:
                    done, _ = await asyncio.wait({pending}, timeout=LOOK_SECONDS)
                    if done:
                        return pending.result()
                    with suppress(Unavailable):  # not known is not over
                        if not await self.goes_on(word):
                            return {"type": "http.disconnect"}
            finally:
                pending.cancel()

        return watched

    async def _tidy(self, token: str) -> None:
        page = await self._store.list(Query(LEASE, SYSTEM_NAMESPACE))
        mine: list[Record] = []
        for record in page.records:
            if not record.key.name.startswith(SESSIONS):
                continue
            if _began(record) + timedelta(seconds=SESSION_SECONDS) < self._now():
                await self._drop(record)
            elif record.obj["spec"].get("holderIdentity") == token:
                mine.append(record)
        for record in sorted(mine, key=_began)[: max(0, len(mine) - MOST_OF_A_TOKEN + 1)]:
            await self._drop(record)

    async def _drop(self, record: Record) -> None:
        with suppress(NotFound):
            await self._store.delete(record.key, uid=record.uid)


def _began(record: Record) -> datetime:
    return parse_timestamp(record.obj["spec"]["acquireTime"])


def _key(word: str) -> Key:
    return Key(LEASE.name, SYSTEM_NAMESPACE, SESSIONS + hashlib.sha256(word.encode()).hexdigest()[:40])
