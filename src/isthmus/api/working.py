"""Work for the processor that a request asks for: in few threads, for a bounded time, and fairly among callers.

Threads share Python's lock with the event loop, but give it away every few milliseconds, so that others are answered
meanwhile. What takes longer than the limit is given up: the caller gets an error, and the thread is free again when its
work ends, which it does, because all of it is bounded. One caller may have only so much under way; the rest waits its
turn, and what would have to wait longer than the limit is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from isthmus.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
OF_A_CALLER = 2
WAITING = 64
"""Requests of one caller that may wait for their turn."""
SECONDS = 20.0


@dataclass(slots=True)
class _Caller:
    turn: asyncio.Semaphore
    requests: int = 0


class WorkThreads:
    """The threads."""

    def __init__(self, threads: int = THREADS, of_a_caller: int = OF_A_CALLER, seconds: float = SECONDS) -> None:
        self._pool = ThreadPoolExecutor(threads, "request-work")
        self._slots = asyncio.Semaphore(threads)
        self._of_a_caller, self._seconds = of_a_caller, seconds
        self._callers: dict[str, _Caller] = {}

    async def run(self, caller: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function; raises Unavailable if it takes too long, or if the caller has too much to do."""
        async with self.turn(caller):
            return await self.in_thread(lambda: function(*args, **kwargs))

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """While it is the caller's turn, for a bounded time; for work that needs more than one function."""
        known = self._callers.setdefault(caller, _Caller(asyncio.Semaphore(self._of_a_caller)))
        if known.requests >= WAITING:
            raise Unavailable("too many large requests are under way; wait until they are answered", retry_after=1)
        known.requests += 1
        try:
            async with asyncio.timeout(self._seconds), known.turn:
                yield
        except TimeoutError:
            raise Unavailable(f"this took more than {self._seconds:.0f} s and was given up; send less") from None
        finally:
            known.requests -= 1
            if not known.requests:
                del self._callers[caller]

    async def in_thread(self, function: Callable[[], T]) -> T:
        """The result of a function, within a turn."""
        await self._slots.acquire()
        future = asyncio.get_running_loop().run_in_executor(self._pool, function)
        future.add_done_callback(lambda _: self._slots.release())  # when the thread is free, not when nobody waits
        return await asyncio.shield(future)
