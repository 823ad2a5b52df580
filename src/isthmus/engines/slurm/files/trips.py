"""Trips to the disk: small calls that come at the same time share one thread.

A call on a file is short, and giving it to a thread of its own costs more than the call: every thread that comes back
from the disk waits for its turn to go on, and in a burst of jobs a dozen of them take turns with everybody. So calls
that have gathered while a trip was under way go together on the next one. Whoever comes alone goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from isthmus._kit.tasks import Supervised
from isthmus.metrics import count_task_failure

T = TypeVar("T")
Call = Callable[[], Any]
Outcome = tuple[Any, BaseException | None]


class Trips:
    """Makes calls in a thread, in order, as many on one trip as there are."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._waiting: list[tuple[Call, asyncio.Future[Any]]] = []
        self._task = Supervised("slurm-trips", self._run, ends=True, failed=count_task_failure)

    async def make(self, call: Callable[[], T]) -> T:
        """The call's result, or its error."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        self._task.start()
        return await future

    async def close(self) -> None:
        """Let go; a trip that hangs is not waited for."""
        await self._task.stop()
        for _, future in self._waiting:
            future.cancel()

    async def _run(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                calls = [call for call, _ in taken]
                outcomes = await asyncio.get_running_loop().run_in_executor(self._threads, _make_all, calls)
            except Exception as broken:  # noqa: BLE001 - of this trip: it goes to all who made it
                outcomes = [(None, broken)] * len(taken)
            except BaseException:
                for _, future in taken:
                    future.cancel()
                raise
            for (_, future), (result, error) in zip(taken, outcomes, strict=True):
                if future.done():  # whoever asked has gone away
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)


def _make_all(calls: Sequence[Call]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for call in calls:
        try:
            outcomes.append((call(), None))
        except Exception as error:  # noqa: BLE001 - of one call: it goes to whoever made it
            outcomes.append((None, error))
    return outcomes
