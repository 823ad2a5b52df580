"""Looking at jobs: one question per interval, for everybody, and only about our own.

Nobody else asks Slurm how jobs are: readers look at what the last answer said. Three kinds of questions are asked:

- about *our jobs that are not over*, every second while there are any, and never otherwise. What it costs us follows
  how many those are, and not how many Slurm remembers. Where the answer is slow (a site with many thousand jobs) it is
  asked less often, so that never more than a quarter of the time is spent on it, and an eighth while our runs only
  wait. What counts is the quickest of the last few: one that was slow because this machine was busy says nothing about
  the site;
- about *a few* that have left word that they began or ended (see `mailbox`): at once, however long the pause is. So
  the other pauses delay only what no job can report by itself;
- about *all jobs*, for recovery (a run that may have been sent without anybody hearing of it is found by its mark), for
  the site's inventory, and where jobs share the energy of nodes.

While runs are being sent and none is known to run, the next question is put off until they are sent, for some seconds
at most: it would show the half of them, and make the others wait for it. A question that was not answered changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.transports.base import SlurmTransport
from isthmus.errors import IsthmusError

log = logging.getLogger(__name__)

SHARE_OF_TIME = 4
"""A second's interval holds as long as the question takes a quarter of it."""
SHARE_WHILE_WAITING = 8
"""The same while none of our runs runs: their starts may be seen a little later than their ends."""
LONGEST_PAUSE = 15.0
FIRST_LOOK = 0.2
"""Seconds from the first run that is sent to the first look: there is nothing to see yet, and others need the time."""
MOST_DOUBLINGS = 2
"""Of the pause while Slurm does not answer: when it answers again, all is to be known within seconds."""
STILL_SENDING = 0.2
"""Seconds after a run was sent in which another one may follow."""
LONGEST_BURST = 5.0
"""Runs that are being sent for longer than these seconds are no burst any more, but the usual."""


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """Jobs at one moment."""

    begun: float
    """When it was asked for, on the monotonic clock: what happened later need not be in it."""
    jobs: tuple[SlurmJob, ...] = ()
    ours: dict[str, list[SlurmJob]] = field(default_factory=dict)
    """By run, each list by the job's number."""
    asked: frozenset[int] | None = None
    """The jobs that were asked for; None: all there are."""
    hinted: bool = False
    """Asked for because of a hint, out of turn: that a job is not in it does not count."""

    def covers(self, number: int | None) -> bool:
        """Whether it says something about a job, be it that Slurm does not have it."""
        return self.asked is None or number in self.asked


@dataclass(frozen=True, slots=True)
class JobsWanted:
    """Which jobs are of interest now."""

    numbers: Sequence[int] = ()
    user: str = ""
    """Whose they all are, if that is one account."""
    unsure: bool = False
    """Whether there are runs whose jobs are not known by number: then it must be all jobs."""


class JobWatcher:
    """Asks how jobs are."""

    def __init__(
        self,
        transport: SlurmTransport,
        interval: float,
        digest: Callable[[JobSnapshot], Awaitable[None]],
        wanted: Callable[[], JobsWanted],
    ) -> None:
        self._transport, self._interval, self._digest, self._wanted = transport, interval, digest, wanted
        self._lock = asyncio.Lock()
        self._busy = asyncio.Event()
        self._running = False
        self._nudge = asyncio.Event()
        self._costs: deque[float] = deque(maxlen=5)
        self._sent = self._began_sending = -math.inf
        self.latest: JobSnapshot | None = None
        """The last one of all jobs."""
        self.taken = 0
        """How many were taken, of some or of all."""

    def watch(self, active: bool, *, running: bool | None = None) -> None:
        """Whether there is anything to look for, and whether any of it runs (None: as before)."""
        self._running = self._running if running is None else running
        if active:
            self._busy.set()
        else:
            self._busy.clear()

    async def needed(self) -> None:
        """Wait until there is anything to look for."""
        await self._busy.wait()

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

    async def fresh(self, since: float | None = None) -> JobSnapshot:
        """All jobs, asked for after a moment (now, if none is given); those who ask at the same time share one."""
        asked = time.monotonic() if since is None else since
        async with self._lock:
            if self.latest is not None and self.latest.begun >= asked:
                return self.latest
            begun = time.monotonic()
            jobs = await self._transport.jobs()
            self.latest = JobSnapshot(begun, tuple(jobs), ours_among(jobs))
            self.taken += 1
            return self.latest

    async def some(self, wanted: JobsWanted, *, hinted: bool = False) -> JobSnapshot:
        """Some jobs, asked for now."""
        begun = time.monotonic()
        jobs = await self._transport.some(wanted.numbers, wanted.user)
        self.taken += 1
        return JobSnapshot(begun, tuple(jobs), ours_among(jobs), frozenset(wanted.numbers), hinted)

    async def _look(self) -> JobSnapshot | None:
        wanted = self._wanted()
        if wanted.unsure:
            return await self.fresh()
        return await self.some(wanted) if wanted.numbers else None

    async def run(self) -> None:
        """Ask and hand on, until cancelled."""
        failures = 0
        while True:
            if not self._busy.is_set():
                await self._busy.wait()
                await self._nudged(FIRST_LOOK)
            begin = time.monotonic()
            try:
                if (snapshot := await self._look()) is not None:
                    self._costs.append(time.monotonic() - begin)
                    await self._digest(snapshot)
                failures = 0
            except IsthmusError as error:
                failures += 1
                log.warning("no answer about jobs", extra={"error": str(error)})
            await self._pause(begin, failures)

    async def _pause(self, begin: float, failures: int) -> None:
        share = SHARE_OF_TIME if self._running else SHARE_WHILE_WAITING
        due = begin + pause(self._interval, self._costs, failures, share)
        self._nudge.clear()
        while (left := due - time.monotonic()) > 0:
            if await self._nudged(left):
                return
            if self.in_burst and not self._running:
                due = self._sent + STILL_SENDING

    async def _nudged(self, seconds: float) -> bool:
        """Wait; whether it was cut short."""
        try:
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        except TimeoutError:
            return False
        return True


def ours_among(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """Our jobs by run, each list by the job's number."""
    ours: dict[str, list[SlurmJob]] = {}
    for job in sorted((job for job in jobs if job.comment), key=lambda job: job.id):
        if run_id := job.run_id:
            ours.setdefault(run_id, []).append(job)
    return ours


def pause(interval: float, costs: Collection[float], failures: int, share: int = SHARE_OF_TIME) -> float:
    """Seconds from one question to the next, by what the last ones cost and how often it failed since."""
    wanted = max(interval, min(costs, default=0.0) * share) * 2.0 ** min(failures, MOST_DOUBLINGS)
    return min(wanted, LONGEST_PAUSE)
