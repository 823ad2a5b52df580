"""A lock for each key, or a few places, kept only while somebody holds it or waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from functools import partial


class KeyedLocks:
    """Lets one at a time, or a few, do something about each key."""

    def __init__(self, at_once: int = 1) -> None:
        self._make = asyncio.Lock if at_once == 1 else partial(asyncio.Semaphore, at_once)
        self._locks: dict[Hashable, asyncio.Lock | asyncio.Semaphore] = {}
        self._users: dict[Hashable, int] = {}

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Wait until nobody else holds this key, and hold it."""
        lock = self._locks.setdefault(key, self._make())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            # The lock stays until the last who waits has had it: one who comes later must not find another lock.
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._locks

    def __len__(self) -> int:
        return len(self._locks)
