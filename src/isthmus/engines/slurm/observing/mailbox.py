"""Jobs leave word when they begin and end, so that nobody has to ask Slurm about all of them all the time.

The batch script leaves empty files in `<folder>/news`: `<run id>.begun` and `<run id>`. That folder is looked at a few
times a second; a name found there is removed first and then looked into, so that word left meanwhile is found the next
time. On a cluster many people can write there. So a name is a hint and no more: it makes us ask Slurm about that one
job, and read that run's own folder. What is no name of a run that we follow is removed and means nothing, and no more
than some thousand names are looked at in one go.

A job leaves word just before its end, so Slurm may still call it running: it is asked again a few times, ever less
often. A slurmctld that was killed may have forgotten the end, and calls it running for minutes, until it hears from the
node; so after a while the run is taken at its word, and what Slurm still has of it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from isthmus.engines.base import RunState
from isthmus.engines.slurm.files.base import LogFile, RunFiles
from isthmus.errors import IsthmusError

from .settling import KnownRun
from .snapshots import JobSnapshot, JobsWanted, JobWatcher

log = logging.getLogger(__name__)

BEGUN = ".begun"
"""Ends the name of word that a run has begun."""
SECONDS = 0.2
"""Between looks into the folder."""
LONGEST_PAUSE = 2.0
"""Between two questions about a job that said that it ends."""
SHARE_OF_AGE = 4
"""A job that said so long ago that it ends is asked about again after this part of that time."""
SOON = 1.0
"""Seconds after its word in which the end of a job is expected."""
TAKEN_AT_ITS_WORD_AFTER = 15.0
"""Seconds for which Slurm may call a run running that has said how it ended."""
GIVEN_UP_AFTER = 30.0
ANSWERS = 5
"""From Slurm, at least, before either: while it does not answer, nothing is concluded."""


@dataclass(slots=True)
class _Hint:
    """A run that left word."""

    since: float
    due: float
    ending: bool
    answers: int = 0

    def stale(self, now: float, seconds: float) -> bool:
        """Whether Slurm had so much time to see the same."""
        return self.answers >= ANSWERS and now > self.since + seconds


class Mailbox:
    """Looks for word that runs have left."""

    def __init__(
        self,
        files: RunFiles,
        watcher: JobWatcher,
        active: Mapping[str, KnownRun],
        digest: Callable[[JobSnapshot], Awaitable[None]],
        take_its_word: Callable[[KnownRun], Awaitable[None]],
        seconds: float = SECONDS,
    ) -> None:
        self._files, self._watcher, self._active, self._digest = files, watcher, active, digest
        self._take_its_word = take_its_word
        self._seconds = seconds
        self._hints: dict[str, _Hint] = {}

    async def run(self) -> None:
        """Look while there are runs to follow, until cancelled."""
        failures, caught_up = 0, False
        while True:
            await self._watcher.needed()
            await asyncio.sleep(self._seconds * 2.0 ** min(failures, 5))
            try:
                if not caught_up:
                    self._take(await self._left_before(), time.monotonic())
                    caught_up = True
                self._take(await self._files.news(), time.monotonic())
                await self._ask(time.monotonic())
                failures = 0
            except IsthmusError as error:
                failures += 1
                log.info("word that runs left cannot be read", extra={"error": str(error)})

    async def _left_before(self) -> list[str]:
        """Runs that said how they ended to somebody who was killed when he had taken their word."""
        runs = list(self._active.values())
        sizes = await self._files.sizes([LogFile(known.run_id, known.record.user, "ended") for known in runs])
        return [known.run_id for known, size in zip(runs, sizes, strict=True) if size]

    def is_ending(self, run_id: str) -> bool:
        """Whether a run has just said that it ends: that it runs is hardly worth reporting any more."""
        hint = self._hints.get(run_id)
        return hint is not None and hint.ending and time.monotonic() < hint.since + SOON

    def _take(self, names: Iterable[str], now: float) -> None:
        for name in names:
            run_id = name.removesuffix(BEGUN)
            if run_id in self._active:
                known = self._hints.get(run_id)
                if known is not None and known.ending:  # since then: whoever repeats it does not put anything off
                    known.due = now
                else:
                    self._hints[run_id] = _Hint(now, now, name == run_id)

    async def _ask(self, now: float) -> None:
        self._drop(now)
        due = [self._active[run_id] for run_id, hint in self._hints.items() if hint.due <= now]
        wanted = wanted_of(known for known in due if known.record.job is not None)
        if wanted.numbers:
            await self._digest(await self._watcher.some(wanted, hinted=True))
        for known in due:
            hint, state = self._hints[known.run_id], known.job and known.job.meaning.state
            hint.answers += 1
            if not hint.ending and state not in (None, RunState.QUEUED):
                del self._hints[known.run_id]
                continue
            if state is RunState.RUNNING and hint.ending and hint.stale(now, TAKEN_AT_ITS_WORD_AFTER):
                await self._take_its_word(known)
            hint.due = time.monotonic() + min(LONGEST_PAUSE, max(self._seconds, (now - hint.since) / SHARE_OF_AGE))

    def _drop(self, now: float) -> None:
        """Forget those that are over, and those that said what cannot be seen."""
        for run_id, hint in list(self._hints.items()):
            if run_id not in self._active or hint.stale(now, GIVEN_UP_AFTER):
                del self._hints[run_id]


def wanted_of(runs: Iterable[KnownRun]) -> JobsWanted:
    """Which jobs to ask for, for these runs."""
    numbers, users, unsure = list[int](), set[str](), False
    for known in runs:
        users.add(known.record.user)
        if known.record.job is None:
            unsure = unsure or (known.unsure and not known.sending)
        else:
            numbers.append(known.record.job)
    return JobsWanted(numbers, users.pop() if len(users) == 1 else "", unsure)
