"""Several ways into one Slurm, each used for what it does best.

Which ones there are is known from the settings; which of them work, and how long each takes to list all jobs, is
found out when the engine is opened, and for those that did not work again from time to time. slurmrestd takes a job in
a third of the time of `sbatch`, while `squeue` lists thousands in a tenth of the time of slurmrestd: so jobs are sent
by one and looked at by the other. The accounting is asked by `sacct` where it can be, which looks for some jobs only.

A way that does not answer is left alone for a while. A question is then put to the next one. A submission is not:
nobody knows whether it arrived, so the engine looks for its job first, and sends it by the way that is then the best.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from isthmus._kit.children import Ready
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.errors import IsthmusError, SiteUnavailable

from .base import SlurmTransport

log = logging.getLogger(__name__)
T = TypeVar("T")

REST = "REST"
LEFT_ALONE = 30.0
"""Seconds for which a way that did not answer is not used, unless there is no other."""


class BestWays:
    """The questions of `SlurmTransport`, each put by the way that answers it best."""

    def __init__(self, ways: Mapping[str, SlurmTransport]) -> None:
        self._all, self._costs = dict(ways), dict[str, float]()
        self._looking: tuple[str, ...] = ()
        self._sending: tuple[str, ...] = ()
        self._commands: tuple[str, ...] = ()
        self._resting: dict[str, float] = {}

    def __str__(self) -> str:
        """For people."""
        return f"jobs are sent by {self._sending[0]} and looked at by {self._looking[0]}"

    async def open(self) -> None:
        """Find out which ways work; raises the error of one of them if none does."""
        errors = [error for error in await asyncio.gather(*map(self._try, self._all)) if error is not None]
        if not self._costs:
            raise errors[0]

    async def _try(self, name: str) -> IsthmusError | None:
        """Find out how long a way takes to list all jobs; or why it cannot be used."""
        way = self._all[name]
        try:
            await way.open()
            await way.facts()
            begin = time.monotonic()
            await way.jobs()
        except IsthmusError as error:
            log.warning("a way into Slurm cannot be used", extra={"way": name, "error": str(error)})
            self._resting[name] = time.monotonic() + LEFT_ALONE
            return error
        self._costs[name] = time.monotonic() - begin
        self._looking = tuple(sorted(self._costs, key=lambda name: self._costs[name]))
        self._sending = tuple(sorted(self._costs, key=lambda name: name != REST))
        self._commands = self._sending[::-1]
        return None

    async def _try_again(self) -> None:
        now = time.monotonic()
        for name in [name for name in self._all if name not in self._costs and self._resting.get(name, 0.0) <= now]:
            await self._try(name)

    async def close(self) -> None:
        """Let go."""
        for way in self._all.values():
            with contextlib.suppress(IsthmusError):
                await way.close()

    async def jobs(self) -> list[SlurmJob]:
        """All jobs."""
        return await self._ask(self._looking, lambda way: way.jobs())

    async def job(self, number: int) -> SlurmJob | None:
        """One job."""
        return await self._ask(self._sending, lambda way: way.job(number))

    async def some(self, numbers: Sequence[int], user: str = "") -> list[SlurmJob]:
        """Some jobs."""
        return await self._ask(self._looking, lambda way: way.some(numbers, user))

    async def submit(self, wanted: Submission, ready: Ready | None = None) -> int:
        """Submit, once."""
        return await self._notify(lambda way: way.submit(wanted, ready))

    async def cancel(self, number: int, user: str) -> None:
        """Ask for the end of a job: as often as is needed."""
        await self._ask(self._sending, lambda way: way.cancel(number, user))

    async def hold(self, number: int, user: str, held: bool) -> None:
        """Hold or release a job."""
        await self._ask(self._sending, lambda way: way.hold(number, user, held))

    async def groups(self, user: str) -> frozenset[str] | None:
        """The groups of an account."""
        return await self._ask(self._commands, lambda way: way.groups(user))

    async def accounted(self, numbers: Sequence[int], since: datetime) -> list[Accounted]:
        """These jobs as the accounting has them."""
        return await self._ask(self._commands, lambda way: way.accounted(numbers, since))

    async def search_accounting(self, users: Sequence[str], since: datetime) -> list[Accounted]:
        """Every job of these accounts since a moment."""
        return await self._ask(self._commands, lambda way: way.search_accounting(users, since))

    async def nodes(self) -> list[SlurmNode]:
        """All nodes."""
        return await self._ask(self._commands, lambda way: way.nodes())

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        return await self._ask(self._commands, lambda way: way.partitions())

    async def facts(self) -> SiteFacts:
        """How it is configured: the command line knows more of it. What did not work is given another chance."""
        await self._try_again()
        return await self._ask(self._commands, lambda way: way.facts())

    def _awake(self, order: Sequence[str]) -> list[str]:
        """Those that answered lately, then the others."""
        now = time.monotonic()
        return sorted(order, key=lambda name: self._resting.get(name, 0.0) > now)

    async def _ask(self, order: Sequence[str], call: Callable[[SlurmTransport], Awaitable[T]]) -> T:
        """Put a question, to one after the other until it is answered."""
        *first, last = self._awake(order)
        for name in first:
            try:
                return await self._use(name, call)
            except SiteUnavailable as error:
                log.info("another way into Slurm is asked", extra={"way": name, "error": str(error)})
        return await self._use(last, call)

    async def _notify(self, call: Callable[[SlurmTransport], Awaitable[T]]) -> T:
        """Do what must not be done twice: by one way only."""
        return await self._use(self._awake(self._sending)[0], call)

    async def _use(self, name: str, call: Callable[[SlurmTransport], Awaitable[T]]) -> T:
        try:
            answer = await call(self._all[name])
        except SiteUnavailable:
            self._resting[name] = time.monotonic() + LEFT_ALONE
            raise
        self._resting.pop(name, None)
        return answer
