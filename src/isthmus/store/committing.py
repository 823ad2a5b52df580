"""Group commit: all writes that wait become one transaction with one fsync.

Callers hand in operations and wait. One writer takes everything that has gathered while the last transaction was
being written, so a lone write goes at once and a burst shares the cost of the disk. Every caller gets its own
result or its own error. When a whole transaction fails for a reason that one operation may have brought in, the
operations are tried one by one, so that only the guilty one fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from isthmus.errors import IsthmusError, StoreUnavailable

from .base import Record
from .changes import Operation, TooMany, Transaction

log = logging.getLogger(__name__)

Outcome = Record | Exception
Commit = Callable[[Sequence[Operation]], Awaitable[Sequence[Outcome]]]
"""Commits operations in one transaction. Answers with one outcome for each, or for the first few: the others are
handed in again. Raises when nothing was committed."""

# An operation that touches more objects than this is decided in a thread, so that the event loop stays free.
_AT_ONCE = 200


class Committer:
    """The queue of writes, and the one task that takes from it."""

    def __init__(self, commit: Commit, batch: int) -> None:
        self._commit = commit
        self._batch = batch
        self._waiting: deque[tuple[Operation, asyncio.Future[Record]]] = deque()
        self._something = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take writes."""
        self._task = asyncio.create_task(self._run(), name="store-writer")

    async def close(self) -> None:
        """Finish what was accepted; refuse what comes now."""
        self._closing = True
        self._something.set()
        if self._task is not None:
            await self._task

    def submit(self, operation: Operation) -> asyncio.Future[Record]:
        """Queue a write. Its future is resolved when the write is durable."""
        if self._closing or self._task is None or self._task.done():
            raise StoreUnavailable("the store is closed; nothing was changed")
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, future))
        self._something.set()
        return future

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                await self._round()
            if self._closing:
                return

    async def _round(self) -> None:
        taken: list[tuple[Operation, asyncio.Future[Record]]] = []
        while self._waiting and len(taken) < self._batch:
            operation, future = self._waiting.popleft()
            if not future.done():  # the caller may have gone away meanwhile
                taken.append((operation, future))
        if not taken:
            return
        outcomes = await self._outcomes([operation for operation, _ in taken])
        for (_, future), outcome in zip(taken, outcomes, strict=False):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._waiting.extendleft(reversed(taken[len(outcomes) :]))

    async def _outcomes(self, operations: Sequence[Operation]) -> Sequence[Outcome]:
        try:
            return await self._commit(operations)
        except IsthmusError as error:  # the store as a whole: locked, full, unreachable
            return [error for _ in operations]
        except Exception as error:
            if len(operations) == 1:
                log.exception("store.commit_failed key=%s", operations[0].key)
                return [_unexpected(error)]
            log.warning("store.batch_failed operations=%d error=%r", len(operations), error)
        outcomes: list[Outcome] = []
        for operation in operations:
            outcomes += await self._outcomes([operation])
        return outcomes


def _unexpected(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"the store could not make the change and made none: {error!r}; see the server's log")


async def decide(
    ledger: Transaction,
    operations: Sequence[Operation],
    size: int,
    load: Callable[[Exception], Awaitable[bool]] | None = None,
) -> list[Outcome]:
    """Apply operations to a ledger until it holds more than `size` bytes; the outcomes of those applied.

    A view that has not loaded what is asked for may raise; `load` then gets it and says whether to try again.
    """
    outcomes: list[Outcome] = []
    for operation in operations:
        if outcomes and ledger.size > size:
            break
        outcomes.append(await _decide_one(ledger, operation, load))
    return outcomes


async def _decide_one(
    ledger: Transaction, operation: Operation, load: Callable[[Exception], Awaitable[bool]] | None
) -> Outcome:
    limit: int | None = _AT_ONCE
    while True:
        try:
            if limit is not None:
                return ledger.apply(operation, limit)
            return await asyncio.to_thread(ledger.apply, operation)
        except TooMany:
            limit = None
        except IsthmusError as error:
            return error
        except Exception as error:
            if load is None or not await load(error):
                raise
