"""Batches: what is asked for while something is under way goes together in the next round.

Whoever comes alone goes at once; in a burst, the rounds grow by themselves, to a limit if there is one. Each gets its
own result or its own error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from .tasks import Supervised

A = TypeVar("A")
R = TypeVar("R")
Answer = Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]]
"""Answers all of one round: a result, or an error, for each. What it raises goes to all of them."""


class Batches(Generic[A, R]):
    """Gathers what is asked for."""

    def __init__(
        self, name: str, answer: Answer[A, R], *, failed: Callable[[str], None], most: int | None = None
    ) -> None:
        self._answer, self._most = answer, most
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._task = Supervised(name, self._run, ends=True, failed=failed)

    async def ask(self, item: A) -> R:
        """The item's result; raises its error."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._task.start()
        return await future

    async def close(self) -> None:
        """Let go; a round that hangs is not waited for."""
        await self._task.stop()
        for _, future in self._waiting:
            future.cancel()

    async def _run(self) -> None:
        while self._waiting:
            most = len(self._waiting) if self._most is None else self._most
            taken, self._waiting = self._waiting[:most], self._waiting[most:]
            answers: Sequence[R | Exception]
            try:
                answers = await self._answer([item for item, _ in taken])
            except Exception as error:  # noqa: BLE001 - of this round: it goes to all who asked
                answers = [error] * len(taken)
            except BaseException:
                for _, future in taken:
                    future.cancel()
                raise
            for (_, future), answer in zip(taken, answers, strict=True):
                if future.done():  # whoever asked has gone away
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
