"""One picture of all jobs, taken by one query per interval, for everybody.

Nobody else asks Slurm how jobs are: readers look at the picture. It is taken every second while a run of ours is there,
and not at all otherwise; where taking it is slow (a site with many thousand jobs) it is taken less often, so that never
more than a quarter of the time is spent on it, and an eighth while our runs only wait. What counts is the quickest of
the last few: one that was slow because this machine was busy says nothing about the site. While runs are being sent and
none is known to run, it is put off until they are sent, for some seconds at most: it would show the half of them, and
make the others wait for it. A picture that could not be taken changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from isthmus.errors import IsthmusError

from .controllers import Controller
from .facts import SlurmJob

log = logging.getLogger(__name__)

SHARE_OF_TIME = 4
"""A second's interval holds as long as the question takes a quarter of it."""
SHARE_WHILE_WAITING = 8
"""The same while none of our runs runs: their starts may be seen a little later than their ends."""
LONGEST_PAUSE = 15.0
STILL_SENDING = 0.2
"""Seconds after a run was sent in which another one may follow."""
LONGEST_BURST = 5.0
"""Runs that are being sent for longer than these seconds are no burst any more, but the usual."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All jobs at one moment."""

    begun: float
    """When it was asked for, on the monotonic clock: what happened later need not be in it."""
    jobs: tuple[SlurmJob, ...] = ()
    ours: dict[str, list[SlurmJob]] = field(default_factory=dict)
    """By run, each list by the job's number."""


class Watcher:
    """Takes pictures."""

    def __init__(self, controller: Controller, interval: float, digest: Callable[[Picture], Awaitable[None]]) -> None:
        self._controller, self._interval, self._digest = controller, interval, digest
        self._lock = asyncio.Lock()
        self._busy = asyncio.Event()
        self._running = False
        self._nudge = asyncio.Event()
        self._costs: deque[float] = deque(maxlen=5)
        self._sent = self._began_sending = -math.inf
        self.latest: Picture | None = None
        self.pictures = 0
        """How many were taken."""

    def watch(self, active: bool, *, running: bool | None = None) -> None:
        """Whether there is anything to look for, and whether any of it runs (None: as before)."""
        self._running = self._running if running is None else running
        if active:
            self._busy.set()
        else:
            self._busy.clear()

    def sending(self) -> None:
        """A run is being sent."""
        now = time.monotonic()
        if now - self._sent > STILL_SENDING:
            self._began_sending = now
        self._sent = now

    @property
    def in_burst(self) -> bool:
        """Whether runs are being sent one after the other."""
        now = time.monotonic()
        return now - self._sent < STILL_SENDING and now - self._began_sending < LONGEST_BURST

    def nudge(self) -> None:
        """Look again without waiting for the interval to end."""
        self._nudge.set()

    async def fresh(self) -> Picture:
        """A picture that was asked for after this call; those who call at the same time share one."""
        asked = time.monotonic()
        async with self._lock:
            if self.latest is not None and self.latest.begun >= asked:
                return self.latest
            begun = time.monotonic()
            jobs = await self._controller.jobs()
            self._costs.append(time.monotonic() - begun)
            ours: dict[str, list[SlurmJob]] = {}
            for job in sorted(jobs, key=lambda job: job.id):
                if run_id := job.run_id:
                    ours.setdefault(run_id, []).append(job)
            self.latest = Picture(begun, tuple(jobs), ours)
            self.pictures += 1
            return self.latest

    async def run(self) -> None:
        """Take pictures and hand them on, until cancelled."""
        failures = 0
        while True:
            await self._busy.wait()
            begin = time.monotonic()
            try:
                await self._digest(await self.fresh())
                failures = 0
            except IsthmusError as error:
                failures += 1
                log.warning("no picture of the jobs", extra={"error": str(error)})
            await self._pause(begin, failures)

    async def _pause(self, begin: float, failures: int) -> None:
        share = SHARE_OF_TIME if self._running else SHARE_WHILE_WAITING
        due = begin + pause(self._interval, self._costs, failures, share)
        self._nudge.clear()
        while (left := due - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._nudge.wait()
                return
            except TimeoutError:
                if self.in_burst and not self._running:
                    due = self._sent + STILL_SENDING


def pause(interval: float, costs: Collection[float], failures: int, share: int = SHARE_OF_TIME) -> float:
    """Seconds from one picture to the next, by what the last ones cost and how often it failed since."""
    wanted = max(interval, min(costs, default=0.0) * share) * 2.0 ** min(failures, 5)
    return min(wanted, LONGEST_PAUSE)
