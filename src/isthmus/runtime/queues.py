"""A work queue of keys: each at most once, never handled by two workers at a time.

A key that is added while it is being handled is handled again afterwards, so no change is missed. Failures are
added again with a delay that doubles per key and is forgotten on success.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys that wait to be handled."""

    def __init__(self, *, base: float = 0.05, ceiling: float = 60.0) -> None:
        self._base, self._ceiling = base, ceiling
        self._ready: deque[K] = deque()
        self._first: deque[K] = deque()
        self._queued: dict[K, bool] = {}
        """Keys that wait, and whether among the first. What a deque has beyond that was moved, and is passed over."""
        self._active: set[K] = set()
        self._again: dict[K, bool] = {}
        """Keys to be handled again, and whether among the first."""
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def add(self, key: K) -> None:
        """Handle the key soon."""
        self._add(key, first=False)

    def add_first(self, key: K) -> None:
        """Handle the key before those that wait: what has happened is reported before something new is begun."""
        self._add(key, first=True)

    def _add(self, key: K, *, first: bool) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if key in self._active:
            self._again[key] = first or self._again.get(key, False)
        elif first > self._queued.get(key, -1):
            self._queued[key] = first
            (self._first if first else self._ready).append(key)
            self._wake()

    def add_after(self, key: K, delay: float) -> None:
        """Handle the key after a delay; an earlier appointment of the same key wins."""
        if delay <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        if known := self._timers.get(key):
            if known.when() <= due:
                return
            known.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def add_failed(self, key: K) -> float:
        """Handle the key again after its backoff; the delay chosen."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(self._ceiling, self._base * 2.0 ** min(count, 30))
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key was handled well: its next failure starts small again."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; it must be given back with `done`."""
        while not self._queued:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the wake-up was meant for somebody; pass it on
                raise
        key = self._next()
        del self._queued[key]
        self._active.add(key)
        return key

    def _next(self) -> K:
        while True:
            first = bool(self._first)
            key = (self._first if first else self._ready).popleft()
            if self._queued.get(key) is first:
                return key

    def done(self, key: K) -> None:
        """The key is no longer being handled."""
        self._active.discard(key)
        if (first := self._again.pop(key, None)) is not None:
            self._add(key, first=first)

    def __len__(self) -> int:
        return len(self._queued)

    def close(self) -> None:
        """Drop all appointments."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
