"""Bringing series up to date when somebody asks: journal and output are read at the site, from where it stopped.

The journal is the source, kept at the site beside the run's log for as long as the job exists; every replica reads it
for itself. So nothing is sampled twice, nothing is lost with a control plane, and a job that nobody looks at costs
nothing here. Of many who ask at once, one reads and the others wait for it.

When a line of output was written is not known; the journal says how long the output was at each sample, and a
reported value gets the time of the first sample that saw it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.locks import KeyedLocks
from isthmus.errors import NotFound
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job

from .journals import REPORTED, Point, first_of, parse, points
from .reports import MAX_NAMES, STEP, Report, parse_line
from .series import Found, Progress, SeriesStore

log = logging.getLogger(__name__)

PIECE = 256 * 2**10
MAX_OUTPUT = 32 * 2**20
"""Bytes of a run's output that are searched for reported values."""
MAX_JOURNAL = 16 * 2**20
"""Bytes of a journal that are read: on some sites it is the job's own, and a job may write what it likes."""
MAX_MARKS = 2000
FRESH_SECONDS = 0.5
SWEEP_SECONDS = 3600.0


class Source(Protocol):
    """Where journals and outputs are, wherever the job runs."""

    async def samples(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the journal; empty at its present end."""
        ...

    async def output(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the output; empty at its present end."""
        ...


class Telemetry:
    """Series of runs, as far as they have come."""

    def __init__(self, path: Path, source: Source, now: Callable[[], float] = time.time) -> None:
        self._path, self._source, self._now = path, source, now
        self._store: SeriesStore | None = None
        self._locks = KeyedLocks()
        self._fresh: dict[str, float] = {}
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the database, and begin to forget what is old."""
        self._store = await asyncio.to_thread(SeriesStore, self._path)
        self._sweeping = asyncio.create_task(self._sweep(), name="telemetry-sweep")

    async def close(self) -> None:
        """Let go."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    async def read(self, job: Job, attempt: int, since: str | None = None) -> Found:
        """The points of a run after a cursor, up to date. Raises SiteUnavailable, StoreUnavailable."""
        await self.refresh(job, attempt)
        return await asyncio.to_thread(self._opened.read, job.run(attempt), since)

    async def latest(self, job: Job) -> dict[str, tuple[float, float]]:
        """The newest point of each series of a job's present run."""
        await self.refresh(job, job.status.attempt)
        return await asyncio.to_thread(self._opened.latest, job.run_id)

    @property
    def _opened(self) -> SeriesStore:
        assert self._store is not None, "telemetry is not open"
        return self._store

    async def refresh(self, job: Job, attempt: int) -> None:
        """Read what the site has and we have not; at most twice a second, however many ask."""
        run = job.run(attempt)
        over = is_over(job, attempt)
        async with self._locks.hold(run):
            if not over and self._now() - self._fresh.get(run, -1e9) < FRESH_SECONDS:
                return
            progress = await asyncio.to_thread(self._opened.progress, run)
            if progress.over or (job.status.started_at is None and attempt == job.status.attempt):
                self._fresh.pop(run, None)
                return
            await self._bring(job, attempt, progress, over)
            if over:
                self._fresh.pop(run, None)
            else:
                self._fresh[run] = self._now()

    async def _bring(self, job: Job, attempt: int, progress: Progress, over: bool) -> None:
        run, started = job.run(attempt), _started(job, attempt)
        while True:
            full = progress.samples >= MAX_JOURNAL
            data = b"" if full else await self._source.samples(job, attempt, progress.samples, PIECE)
            samples, used = parse(data)
            found = points(samples, progress.last or first_of(started))
            marks = [(s.output_bytes, s.at) for s in samples if s.output_bytes is not None]
            progress = replace(
                progress,
                samples=progress.samples + used,
                last=samples[-1] if samples else progress.last,
                marks=[*progress.marks, *marks],
                estimated=progress.estimated or any(sample.estimated for sample in samples),
            )
            more = used > 0 and len(data) == PIECE and progress.samples < MAX_JOURNAL
            reported, progress = await self._reported(job, attempt, progress, last=over and not more)
            done = over and not more
            if found or reported or done or samples:
                progress.over = done
                await asyncio.to_thread(self._opened.add, run, progress, [*found, *reported], self._now())
            if not more:
                return

    async def _reported(
        self, job: Job, attempt: int, progress: Progress, *, last: bool
    ) -> tuple[list[Point], Progress]:
        """Reported values in the output that the samples have seen; all of it when the run is over."""
        seen = progress.marks[-1][0] if progress.marks else 0
        at, found, marks, names = progress.output, [], progress.marks, progress.names
        end = MAX_OUTPUT if last or progress.last is None else min(MAX_OUTPUT, int(seen))
        while at < end:
            data = await self._source.output(job, attempt, at, min(PIECE, end - at))
            cut = data.rfind(b"\n") + 1
            if not cut:
                if len(data) < PIECE and not last:
                    break
                cut = len(data)
            if not cut:
                break
            place = at
            for line in data[:cut].split(b"\n"):
                place += len(line) + 1
                if b"isthmus:" in line and (report := parse_line(line)):
                    moment = _moment(marks, place - 1, job, attempt, self._now())
                    names = _known(names, report)
                    found += [Point(REPORTED + name, moment, report[name]) for name in names if name in report]
            at += cut
        left = [mark for mark in marks if mark[0] > at] or marks[-1:]
        return found, replace(progress, output=at, marks=left[:MAX_MARKS], names=names)

    async def _sweep(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._opened.sweep, self._now())
            except Exception:  # forgetting is a courtesy: it is tried again, and nothing else waits for it
                log.exception("old series were not removed")
            await asyncio.sleep(SWEEP_SECONDS)


def is_over(job: Job, attempt: int) -> bool:
    """Whether that run will write nothing more."""
    status = job.status
    return attempt < status.attempt or status.phase.terminal or status.phase is JobPhase.FINISHING


def _known(names: list[str], report: Report) -> list[str]:
    """The names that there are series of, with new ones as long as there is room."""
    new = [name for name in report if name != STEP and name not in names]
    return [*names, *new][:MAX_NAMES] if new else names


def _started(job: Job, attempt: int) -> float | None:
    text = job.status.started_at
    if attempt != job.status.attempt:
        text = next((past.started_at for past in job.status.tries or () if past.attempt == attempt), None)
    return parse_timestamp(text).timestamp() if text else None


def _moment(marks: list[tuple[float, float]], place: int, job: Job, attempt: int, now: float) -> float:
    """When a byte of the output was written, as well as the samples say."""
    for size, at in marks:
        if size >= place:
            return at
    ended = job.status.finished_at if attempt == job.status.attempt else None
    return parse_timestamp(ended).timestamp() if ended else now


async def read_safely(telemetry: Telemetry, job: Job) -> dict[str, tuple[float, float]]:
    """The newest points of a job; none if its site has lost it."""
    try:
        return await telemetry.latest(job)
    except NotFound:
        return {}
