"""Notifies subscribers which runs may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable


class News:
    """Notifies subscribers which runs may have changed."""

    def __init__(self) -> None:
        self._subscribers: set[_Subscriber] = set()

    def notify(self, run_ids: set[str]) -> None:
        """Their observations may be new."""
        for subscriber in self._subscribers:
            subscriber.add(run_ids)

    def close(self) -> None:
        """End every subscription."""
        for subscriber in self._subscribers:
            subscriber.finish()

    async def subscribe(self, known: Callable[[], set[str]]) -> AsyncIterator[set[str]]:
        """Every run known when the first is asked for, and then those that change."""
        subscriber = _Subscriber(known())
        self._subscribers.add(subscriber)
        try:
            yield subscriber.take()
            while await subscriber.ready():
                yield subscriber.take()
        finally:
            self._subscribers.discard(subscriber)


class _Subscriber:
    def __init__(self, pending: set[str]) -> None:
        self._pending = pending
        self._event = asyncio.Event()
        self._finished = False

    def add(self, run_ids: set[str]) -> None:
        self._pending |= run_ids
        self._event.set()

    def take(self) -> set[str]:
        taken, self._pending = self._pending, set()
        self._event.clear()
        return taken

    def finish(self) -> None:
        self._finished = True
        self._event.set()

    async def ready(self) -> bool:
        await self._event.wait()
        return not self._finished
