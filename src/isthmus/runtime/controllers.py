"""The loop: take a key, reconcile it, see to it that it comes back when it should.

An error that may pass by itself, or that nobody foresaw, means backoff. A conflict means that what was read is
old: the newer version is already on its way, so the result is dropped and the key tried again soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from isthmus.errors import Conflict, IsthmusError
from isthmus.metrics import RECONCILE_ERRORS, RECONCILES
from isthmus.store.base import Key

from .queues import WorkQueue

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconciler asks for: nothing more, or to be called again after so many seconds."""

    requeue_after: float | None = None


DONE = Result()
Reconcile = Callable[[Key], Awaitable[Result]]


class Controller:
    """Workers over one queue and one reconcile function."""

    def __init__(
        self, name: str, reconcile: Reconcile, *, workers: int = 4, queue: WorkQueue[Key] | None = None
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Key] = queue if queue is not None else WorkQueue()
        self._reconcile = reconcile
        self._workers = workers
        self._count = RECONCILES.labels(name)
        self._errors = RECONCILE_ERRORS.labels(name)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self.queue.close()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._handle(key)
            finally:
                self.queue.done(key)

    async def _handle(self, key: Key) -> None:
        self._count.inc()
        try:
            result = await self._reconcile(key)
        except Conflict:
            self.queue.add_after(key, 0.02)
        except IsthmusError as error:
            self._errors.inc()
            delay = self.queue.add_failed(key)
            level = logging.INFO if error.transient else logging.WARNING
            log.log(
                level,
                "reconcile failed",
                extra={"controller": self.name, "key": str(key), "error": str(error), "retry_in": delay},
            )
        except Exception:  # one broken object must not stop the others
            self._errors.inc()
            delay = self.queue.add_failed(key)
            log.exception("reconcile broke", extra={"controller": self.name, "key": str(key), "retry_in": delay})
        else:
            self.queue.forget(key)
            if result.requeue_after is not None:
                self.queue.add_after(key, result.requeue_after)
