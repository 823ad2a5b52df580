"""Trips to the disk: small calls that come at the same time share one thread.

A call on a file is short, and giving it to a thread of its own costs more than the call: every thread that comes back
from the disk waits for its turn to go on, and in a burst of jobs a dozen of them take turns with everybody. So calls
that have gathered while a trip was under way go together on the next one. Whoever comes alone goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

from isthmus._kit.batching import Batches
from isthmus.metrics import count_task_failure

T = TypeVar("T")
Call = Callable[[], Any]


class Trips:
    """Makes calls in a thread, in order, as many on one trip as there are."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._calls = Batches[Call, Any]("slurm-trips", self._go, failed=count_task_failure)

    async def make(self, call: Callable[[], T]) -> T:
        """The call's result, or its error."""
        return cast(T, await self._calls.ask(call))

    async def close(self) -> None:
        """Let go; a trip that hangs is not waited for."""
        await self._calls.close()

    async def _go(self, calls: Sequence[Call]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _make_all, calls)


def _make_all(calls: Sequence[Call]) -> list[Any]:
    return [_make(call) for call in calls]


def _make(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - of one call: it goes to whoever made it
        return error
