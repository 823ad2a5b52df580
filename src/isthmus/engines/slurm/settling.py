"""Finding out how runs ended, once, and writing it down.

Slurm forgets a job some minutes after its end, so the end is written into the run's record as soon as it is seen. What
is known comes from four places: Slurm's picture, its books, what the batch script wrote, and Slurm's own output file.
A place that has not caught up yet (books run behind, network file systems too) is given a few more looks; books that
are later still are left to `late_books`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isthmus.engines.base import Observation, RunState
from isthmus.engines.metering import Power
from isthmus.errors import IsthmusError

from . import observing, parsing, records
from .controllers import Controller
from .facts import Accounted, SiteFacts, SlurmJob
from .files import LogFile, RunFiles
from .late_books import GIVEN_UP_AFTER, LateBooks
from .observing import Evidence, Word
from .records import Record
from .sharing import share_of_nodes
from .states import meaning
from .watching import Picture

log = logging.getLogger(__name__)

PATIENCE, PATIENCE_SECONDS = 3, 3.0
"""Looks, and seconds, that a place is given at least to catch up."""
LOST_AFTER = 3
"""Pictures in a row without a job that Slurm says it does not know, before it counts as lost."""
AT_ONCE = 32


@dataclass(slots=True)
class Known:
    """A run that is not over, as far as it is known."""

    record: Record
    job: SlurmJob | None = None
    since: float = 0.0
    """When it was sent, on the monotonic clock: older pictures say nothing about it."""
    unsure: bool = True
    """Whether it may have been sent without anybody hearing of it."""
    looks: int = 0
    first_look: float = 0.0
    missing: int = 0
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    start: observing.Range | None = None
    """When it may begin, while it waits; kept until Slurm's plan changes by a minute."""

    def take(self, job: SlurmJob, now: datetime) -> bool:
        """What a picture shows of it; whether that is news."""
        if job == self.job:
            return False
        before = self.observation()
        start = observing.start_between(job, now) if job.meaning.state is RunState.QUEUED else None
        if (start and start[1]) != (self.start and self.start[1]):
            self.start = start
        self.job = job
        return before != self.observation()

    def adopt(self, job: SlurmJob) -> None:
        """Slurm has it under this number."""
        self.job, self.since, self.missing, self.unsure = job, time.monotonic(), 0, False
        self.record = self.record.sent(job.id)

    @property
    def run_id(self) -> str:
        """The run."""
        return self.record.run_id

    @property
    def waits(self) -> bool:
        """Whether it is in Slurm's queue."""
        return self.job is not None and self.job.meaning.state is RunState.QUEUED

    def observation(self) -> Observation | None:
        """What can be said of it; None: Slurm may not have it."""
        if self.record.final is not None:
            return self.record.final
        if self.job is None or self.record.job is None:
            return None
        seen = observing.going_on(self.record, self.job, self.units, self.start)
        # Its end is only told once all about it is known.
        if seen.state is RunState.ENDED:
            return Observation(RunState.RUNNING, seen.engine_id, self.job.started_at, devices=seen.devices)
        return seen


class Settler:
    """Settles the ends of runs."""

    def __init__(self, controller: Controller, files: RunFiles) -> None:
        self._controller, self._files = controller, files
        self.facts = SiteFacts()
        self.power: Mapping[str, Power] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.late = LateBooks(self._books, files)

    async def settle(self, ended: Sequence[Known], picture: Picture) -> set[str]:
        """Write down the ends of these; those that are settled."""
        if not ended:
            return set()
        books = await self._books([known.job for known in ended if known.job is not None])
        done = await asyncio.gather(*(self._settle_one(known, books, picture) for known in ended))
        return {known.run_id for known, settled in zip(ended, done, strict=True) if settled}

    async def _books(self, ended: Sequence[SlurmJob]) -> dict[int, Accounted]:
        """One question to the books for all that ended."""
        if not self.facts.accounting:
            return {}
        wanted = {job.id: job for job in ended}
        begin = min((j.submitted_at for j in wanted.values() if j.submitted_at), default=datetime.now(UTC))
        try:
            found = await self._controller.books(list(wanted), begin - timedelta(days=1))
        except IsthmusError as error:
            log.info("the books do not answer", extra={"error": str(error)})
            return {}
        return {row.id: row for row in found if _same(row, wanted.get(row.id))}

    async def _settle_one(self, known: Known, books: Mapping[int, Accounted], picture: Picture) -> bool:
        async with self._gate:
            try:
                return await self._look(known, books, picture)
            except IsthmusError as error:
                log.warning("the end of a run is not known yet", extra={"run": known.run_id, "error": str(error)})
                return False

    async def _look(self, known: Known, books: Mapping[int, Accounted], picture: Picture) -> bool:
        job = known.job
        assert job is not None
        word, begun = await self._words(known)
        if begun is not None and begun != job.id:
            # Two jobs carry this run's mark, and the other was the first to begin it.
            known.record = known.record.sent(begun)
            known.job = await self._controller.job(begun)
            await self._files.write_record(known.run_id, records.dump(known.record))
            return False
        row = books.get(job.id)
        known.looks += 1
        known.first_look = known.first_look or time.monotonic()
        patient = known.looks < PATIENCE or time.monotonic() < known.first_look + PATIENCE_SECONDS
        expected = "COMPLETED" in job.states or ("FAILED" in job.states and begun is not None)
        unheard = self.facts.accounting and not (row is not None and row.whole)
        # Slurm tells its books of a short job up to five seconds late. They are worth waiting for where only they know
        # how it ended, or the energy that was measured.
        awaited = unheard and (word is None or self.facts.measures_energy)
        if patient and (awaited or (expected and word is None)):
            return False
        if word is None and job.exit_code is None and job.signal is None:
            detailed = await self._controller.job(job.id)
            if detailed is not None and detailed.run_id == known.run_id:
                job = detailed
        evidence = await self._evidence(known, job, row, picture, (word, begun))
        final = observing.over(evidence)
        await self.finish(known, final, late=unheard)
        if unheard:
            self.late.add(evidence, job, final)
        return True

    async def resume(self, record: Record, picture: Picture) -> None:
        """A run whose end was told before a restart, and whose books were still awaited: ask for them again."""
        final, now = record.final, datetime.now(UTC)
        assert final is not None
        job = next((job for job in picture.ours.get(record.run_id, ()) if job.id == record.job), None)
        if (
            job is None
            or not self.facts.accounting
            or (final.ended_at or now) < now - timedelta(seconds=GIVEN_UP_AFTER)
        ):
            await self._files.finish_record(record.run_id, records.dump(record))
            return
        known = Known(record, job)
        evidence = await self._evidence(known, job, None, picture, await self._words(known))
        self.late.add(evidence, job, final)

    async def _evidence(
        self,
        known: Known,
        job: SlurmJob,
        row: Accounted | None,
        picture: Picture,
        words: tuple[Word | None, int | None],
    ) -> Evidence:
        """All that can be known of a run whose job Slurm shows."""
        word, begun = words
        tail = "" if word is not None and not word.missing else await self._tail(known)
        if word is not None and word.missing:
            tail = await self._last_words(known)
        return Evidence(
            known.record,
            job,
            row,
            word,
            begun is not None,
            tail,
            await self.units(known),
            share_of_nodes(job, picture.jobs, datetime.now(UTC)),
            self.power,
        )

    async def missing(self, known: Known) -> bool:
        """A run whose job is not in the picture: find out what became of it. Whether its observation changed."""
        number = known.record.job
        if number is None:
            return False
        job = await self._controller.job(number)
        if job is not None and job.run_id == known.run_id and job.user in ("", known.record.user):
            known.job, known.missing = job, 0  # the picture was not whole
            return True
        # Slurm said that it has no such job, or that the number is another's now.
        known.missing += 1
        if known.missing < LOST_AFTER:
            return False
        word, begun = await self._words(known)
        row = None
        if self.facts.accounting:
            since = datetime.fromtimestamp(known.record.sent_at, UTC) - timedelta(days=1)
            folder = self._files.folder(known.run_id)
            row = await self._controller.search_books(f"{folder}/work", known.record.user, since)
        if row is not None and meaning(row.states).state is not RunState.ENDED:
            row = None  # the books never heard of its end
        if word is None and row is None and begun is None and not known.record.cancelled:
            # Lost before it began. Nobody has run it, so it may be submitted again.
            log.warning("slurm lost a job before it began", extra={"run": known.run_id, "job": number})
            known.job, known.record, known.unsure, known.missing = None, records.unsent(known.record), True, 0
            await self._files.write_record(known.run_id, records.dump(known.record))
            return True
        evidence = Evidence(
            known.record, None, row, word, begun is not None, units=await self.units(known), power=self.power
        )
        await self.finish(known, observing.over(evidence))
        return True

    async def finish(self, known: Known, final: Observation, *, late: bool = False) -> None:
        """The run is over: write it down; beside those that are not over, while its books are late."""
        record = known.record.ended(final)
        write = self._files.write_record if late else self._files.finish_record
        await write(known.run_id, records.dump(record))
        known.record = record

    async def units(self, known: Known) -> Mapping[str, tuple[str, ...]]:
        """Which units of its devices a run was given; looked up once."""
        if known.record.devices and not known.units:
            text = await self._files.read(LogFile(known.run_id, known.record.user, "units"))
            known.units = parsing.units((text or b"").decode(errors="replace"))
        return known.units

    async def _words(self, known: Known) -> tuple[Word | None, int | None]:
        """What the script wrote at the end, and which job began the run."""
        user = known.record.user
        ended = await self._files.read(LogFile(known.run_id, user, "ended"))
        if ended is not None and (word := observing.read_word(ended.decode(errors="replace"))) is not None:
            return word, word.job
        begun = await self._files.read(LogFile(known.run_id, user, "begun"))
        first = (begun or b"").split(b" ")[0]
        return None, int(first) if first.isdigit() else None

    async def _tail(self, known: Known) -> str:
        content = await self._files.read(LogFile(known.run_id, known.record.user, "slurm.out")) or b""
        return _last_line(content)

    async def _last_words(self, known: Known) -> str:
        name = "stderr" if known.record.separate_streams else "stdout"
        return _last_line(await self._files.read(LogFile(known.run_id, known.record.user, name)) or b"")


def _last_line(content: bytes) -> str:
    lines = [line for line in content.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("isthmus: ")[:500] if lines else ""


def _same(row: Accounted, job: SlurmJob | None) -> bool:
    """Numbers are used again after a cold start: the books may have an older job under this one."""
    if job is None or (row.user and job.user and row.user != job.user):
        return False
    if row.submitted_at is None or job.submitted_at is None:
        return True
    return abs((row.submitted_at - job.submitted_at).total_seconds()) <= 2
