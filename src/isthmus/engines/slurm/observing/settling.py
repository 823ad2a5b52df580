"""Finding out how runs ended, once, and writing it down.

Slurm forgets a job some minutes after its end, so the end is written into the run's record as soon as it is seen. What
is known comes from four places: the snapshot of jobs, the accounting, what the batch script wrote, and Slurm's own
output file. A place that has not caught up yet (accounting runs behind, network file systems too) is given a few more
looks; accounting that is later still is left to `accounting.late`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from isthmus._kit.crashpoints import step_async
from isthmus._kit.numbers import whole
from isthmus._kit.tasks import reason
from isthmus.engines.base import EndReason, Observation, RunState
from isthmus.engines.metering import Power
from isthmus.engines.meters import WHOLE_NODE
from isthmus.engines.slurm.accounting.late import GIVEN_UP_AFTER, LateAccounting
from isthmus.engines.slurm.accounting.lookup import CLOCKS_DIFFER, AccountingSearch, Sought
from isthmus.engines.slurm.accounting.sharing import Neighbours
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.base import LogFile, RunFiles
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.states import meaning
from isthmus.engines.slurm.transports import parsing
from isthmus.engines.slurm.transports.base import SlurmTransport
from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.metrics import count_task_failure

from . import liveness, observations
from .liveness import Pulse
from .lost_runs import LostRuns
from .observations import Evidence, Word
from .snapshots import JobSnapshot

log = logging.getLogger(__name__)

PATIENCE, PATIENCE_SECONDS = 3, 3.0
"""Looks, and seconds, that a place is given at least to catch up."""
CLAIM_SECONDS = 10.0
"""The same where Slurm calls a run cancelled that we did not cancel, and the run itself recorded no end."""
LOST_AFTER = 3
"""Snapshots in a row without a job, before Slurm is asked for this very job, and what became of it is found out."""
ACCOUNTING_EVERY = 10
"""Looks at a run that Slurm does not know and that may be alive, from one question to the accounting to the next."""
GHOST_SECONDS = 5.0
"""From one attempt to the next to have Slurm end what it still has of a run that is over."""
AT_ONCE = 32

Words = tuple[Word | None, int | None]
"""What a run's own script wrote at its end, and the number of the job that began it."""


@dataclass(slots=True)
class KnownRun:
    """A run that is not over, as far as it is known."""

    record: RunRecord
    job: SlurmJob | None = None
    since: float = 0.0
    """When it was sent, on the monotonic clock: older snapshots say nothing about it."""
    unsure: bool = True
    """Whether it may have been sent without anybody hearing of it."""
    looks: int = 0
    first_look: float = 0.0
    missing: int = 0
    lost: frozenset[int] = frozenset()
    """Numbers under which Slurm had it, and lost it before it began."""
    sending: bool = False
    """Whether it is being sent now."""
    unsure_since: float = field(default_factory=time.monotonic)
    """Since when, on the monotonic clock: what was asked for before says nothing about it."""
    broken: int = 0
    """How often its end could not be understood."""
    pulse: Pulse = field(default_factory=Pulse)
    """What was last heard of it, where Slurm does not vouch for it."""
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    start: observations.Range | None = None
    """When it may begin, while it waits; kept until Slurm's plan changes by a minute."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while its record is written: lines arrive in the order in which they became true."""

    def take(self, job: SlurmJob, now: datetime) -> bool:
        """What a snapshot shows of it; whether that is news."""
        if job == self.job:
            return False
        before = self.observation()
        start = observations.start_between(job, now) if job.meaning.state is RunState.QUEUED else None
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
        if self.record.job is None:
            return None
        if self.job is None:
            reported = f"Slurm does not show job {self.record.job} at present; it is being looked for"
            return Observation(RunState.UNKNOWN, str(self.record.job), message=reported)
        seen = observations.going_on(self.record, self.job, self.units, self.start)
        # Its end is only reported once all about it is known.
        if seen.state is RunState.ENDED:
            return replace(seen, state=RunState.RUNNING, started_at=self.job.started_at, message="")
        return seen


class RunSettler:
    """Settles the ends of runs."""

    def __init__(
        self, transport: SlurmTransport, files: RunFiles, all_jobs: Callable[[float], Awaitable[JobSnapshot]]
    ) -> None:
        self._transport, self._files, self._all_jobs = transport, files, all_jobs
        self._search = AccountingSearch(lambda users, since: self._transport.search_accounting(users, since))
        self._neighbours: tuple[JobSnapshot, Neighbours] | None = None
        self.facts = SiteFacts()
        self.power: Mapping[str, Power] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.late = LateAccounting(self._accounted, files, self._share)
        self.lost = LostRuns(self._hear)

    async def settle(self, ended: Sequence[KnownRun], snapshot: JobSnapshot) -> set[str]:
        """Write down the ends of these; those that are settled."""
        if not ended:
            return set()
        words = await asyncio.gather(*(self._words_of(known) for known in ended))
        # What the job itself recorded is enough to say how it ended: the accounting follows, for all of them at once.
        asked = [
            known.job
            for known, found in zip(ended, words, strict=True)
            if known.job is not None and isinstance(found, tuple) and (found[0] is None or self.facts.measures_energy)
        ]
        accounted = await self._accounted(asked)
        looks = (self._settle_one(known, accounted, snapshot, found) for known, found in zip(ended, words, strict=True))
        done = await asyncio.gather(*looks)
        return {known.run_id for known, settled in zip(ended, done, strict=True) if settled}

    async def _accounted(self, ended: Sequence[SlurmJob]) -> dict[int, Accounted]:
        """One query of the accounting for all that ended."""
        if not self.facts.accounting or not ended:
            return {}
        wanted = {job.id: job for job in ended}
        # They were there until they ended, by the cluster's own clock.
        begin = min(job.ended_at or job.started_at or job.submitted_at or datetime.now(UTC) for job in ended)
        try:
            found = await self._transport.accounted(list(wanted), begin - CLOCKS_DIFFER)
        except IsthmusError as error:
            log.info("the accounting does not answer", extra={"error": str(error)})
            return {}
        return {row.id: row for row in found if _same(row, wanted.get(row.id))}

    async def _words_of(self, known: KnownRun) -> Words | Exception:
        """What a run left, or why that cannot be read."""
        async with self._gate:
            try:
                return await self._words(known)
            except Exception as error:  # noqa: BLE001 - of what this job alone left behind
                return error

    async def _settle_one(
        self,
        known: KnownRun,
        accounted: Mapping[int, Accounted],
        snapshot: JobSnapshot,
        words: Words | Exception,
    ) -> bool:
        async with self._gate:
            try:
                if isinstance(words, Exception):
                    raise words
                return await self._look(known, accounted, snapshot, words)
            except IsthmusError as error:
                log.warning("the end of a run is not known yet", extra={"run": known.run_id, "error": str(error)})
                return False
            except Exception as error:  # noqa: BLE001 - of what this job alone left behind: the others are settled
                return await self._give_up(known, error)

    async def _give_up(self, known: KnownRun, error: Exception) -> bool:
        """What a run left behind cannot be understood: after a few looks that is how it ended."""
        count_task_failure("slurm-settle")
        log.error("the end of a run cannot be understood", exc_info=error, extra={"run": known.run_id})
        known.broken += 1
        if known.broken < PATIENCE:
            return False
        reported = f"it ended, but what it left behind cannot be understood: {reason(error)}"
        number = "" if known.record.job is None else str(known.record.job)
        final = Observation(RunState.ENDED, number, reason=EndReason.SUPERVISOR_LOST, message=reported)
        try:
            await self.finish(known, final)
        except IsthmusError:
            return False
        return True

    async def _look(
        self,
        known: KnownRun,
        accounted: Mapping[int, Accounted],
        snapshot: JobSnapshot,
        words: Words,
    ) -> bool:
        job = known.job
        assert job is not None
        word, begun = words
        if begun is not None and begun != job.id:
            # Two jobs carry this run's mark, and the other was the first to begin it; if it has that mark: the job
            # itself can write there, also the number of somebody else's.
            first = await self._transport.job(begun)
            if first is not None and first.run_id == known.run_id and first.user in ("", known.record.user):
                known.record, known.job = known.record.sent(begun), first
                return not await self.note(known)
            if word is None:  # how this job ended, which did nothing, says nothing of the run
                known.looks += 1
                return await self._conclude(known, words, time.monotonic(), known.looks)
        row = accounted.get(job.id)
        claimed = await self._claimed(known, job)
        if word is None and begun is not None and await self._writes(known):
            # After slurmctld was killed Slurm may launch a job again that runs; the node refuses, and Slurm calls it
            # over.
            known.looks, known.first_look = 0, 0.0
        known.looks += 1
        known.first_look = known.first_look or time.monotonic()
        seconds = CLAIM_SECONDS if claimed and word is None else PATIENCE_SECONDS
        if claimed or "FAILED" in job.states:
            seconds = max(seconds, liveness.RESTS * known.pulse.rest)
        patient = known.looks < PATIENCE or time.monotonic() < known.first_look + seconds
        expected = "COMPLETED" in job.states or ((claimed or "FAILED" in job.states) and begun is not None)
        unheard = self.facts.accounting and not (row is not None and row.whole)
        # Slurm reports a short job to its accounting up to five seconds late. That is worth waiting for where only it
        # knows how it ended, or the energy that was measured.
        awaited = unheard and (word is None or self.facts.measures_energy)
        if patient and (awaited or (expected and word is None)):
            return False
        if word is None and job.exit_code is None and job.signal is None:
            detailed = await self._transport.job(job.id)
            if detailed is not None and detailed.run_id == known.run_id:
                job = detailed
        evidence = await self._evidence(known, job, row, snapshot, (word, begun))
        final = observations.over(evidence)
        await self.finish(known, final, late=unheard)
        if unheard and known.record.final is final:
            self.late.add(evidence, job, final)
        return True

    async def _claimed(self, known: KnownRun, job: SlurmJob) -> bool:
        """Whether Slurm calls a job cancelled that we did not ask it to cancel."""
        if job.meaning.reason is not EndReason.CANCELLED or known.record.cancelled:
            return False
        content = await self._files.read_record(known.run_id)
        if content is not None and records.load(known.run_id, content).cancelled:  # another control plane asked
            known.record = replace(known.record, cancelled=True)
        return not known.record.cancelled

    async def _writes(self, known: KnownRun) -> bool:
        """Whether the sampler of a run has written since the last look: then it runs, whatever Slurm says."""
        return await liveness.listen(known.pulse, self._files, known.run_id, known.record.user, time.monotonic())

    async def recall(self, unsure: Iterable[KnownRun]) -> None:
        """Runs whose numbers were not noted before a restart: those that have begun have written them down."""

        async def one(known: KnownRun) -> None:
            async with self._gate:
                _, begun = await self._words(known)
            if begun is not None:
                known.record = known.record.sent(begun)

        await asyncio.gather(*(one(known) for known in unsure if known.record.job is None))

    async def resume(self, ended: Iterable[RunRecord], snapshot: JobSnapshot) -> list[RunRecord]:
        """Runs whose ends were reported before a restart, and may still be corrected: listen and ask again.

        Those that Slurm still calls alive: see `end_ghost`.
        """
        ghosts = list[RunRecord]()
        for record in ended:
            try:
                if await self._resume(record, snapshot):
                    ghosts.append(record)
            except IsthmusError:
                raise
            except Exception as error:
                log.error("a run cannot be understood", exc_info=error, extra={"run": record.run_id})
        return ghosts

    async def _resume(self, record: RunRecord, snapshot: JobSnapshot) -> bool:
        final, now = record.final, datetime.now(UTC)
        assert final is not None
        if final.reason is EndReason.SUPERVISOR_LOST:
            self.lost.add(record)
            return False
        job = next((job for job in snapshot.ours.get(record.run_id, ()) if job.id == record.job), None)
        if job is not None and job.meaning.state is not RunState.ENDED:
            return True
        if (
            job is None
            or not self.facts.accounting
            or (final.ended_at or now) < now - timedelta(seconds=GIVEN_UP_AFTER)
        ):
            await self._files.finish_record(record.run_id, records.dump(record))
            return False
        known = KnownRun(record, job)
        evidence = await self._evidence(known, job, None, snapshot, await self._words(known))
        self.late.add(evidence, job, final)
        return False

    async def _evidence(
        self,
        known: KnownRun,
        job: SlurmJob,
        row: Accounted | None,
        snapshot: JobSnapshot,
        words: Words,
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
            await self._share(job, snapshot.begun) if self._shares(word) else 1.0,
            self.power,
            self.facts.services,
        )

    def _shares(self, word: Word | None) -> bool:
        """Whether there may be energy of whole nodes to share out."""
        if self.facts.measures_energy:
            return True
        return word is not None and (bool(word.energy_joules) or any(source in WHOLE_NODE for source, _ in word.meters))

    async def _share(self, job: SlurmJob, since: float) -> float:
        """A job's part of its nodes' energy: for that, all jobs must be seen."""
        snapshot = await self._all_jobs(since)
        if self._neighbours is None or self._neighbours[0] is not snapshot:
            self._neighbours = snapshot, Neighbours(snapshot.jobs, datetime.now(UTC))
        return self._neighbours[1].share(job)

    async def missing(self, absent: Sequence[KnownRun]) -> set[str]:
        """Runs whose jobs were asked for and not shown: find out what became of them. Those of whom that is news."""
        for known in absent:
            known.missing += 1
        asked, lost = time.monotonic(), [known for known in absent if known.missing >= LOST_AFTER]
        changed = await asyncio.gather(*(self._missing_one(known, asked) for known in lost))
        return {known.run_id for known, news in zip(lost, changed, strict=True) if news}

    async def _missing_one(self, known: KnownRun, asked: float) -> bool:
        async with self._gate:
            try:
                return await self._look_for(known, asked)
            except IsthmusError as error:  # of one run: the others go on
                log.warning("a run could not be looked at", extra={"run": known.run_id, "error": str(error)})
                return False
            except Exception as error:
                count_task_failure("slurm-missing")
                log.error("a run cannot be understood", exc_info=error, extra={"run": known.run_id})
                return False

    async def _look_for(self, known: KnownRun, asked: float) -> bool:
        number = known.record.job
        assert number is not None
        # Nothing is concluded from lists alone: Slurm is asked for this very job, in another way.
        job = await self._transport.job(number)
        if job is not None and job.run_id == known.run_id and job.user in ("", known.record.user):
            known.job, known.missing = job, 0  # the list was not whole
            return True
        # Slurm said that it has no such job, or that the number is another's now.
        return await self._conclude(known, await self._words(known), asked, known.missing - LOST_AFTER)

    async def _conclude(self, known: KnownRun, words: Words, asked: float, looks: int) -> bool:
        """What became of a run of which Slurm has no job, as far as that is certain; whether it is."""
        word, begun = words
        alive = word is None and await self._may_live(known, begun)
        row = None if alive and looks % ACCOUNTING_EVERY else await self.search(known, asked)
        if row is not None and (meaning(row.states).state is not RunState.ENDED or begun not in (None, row.id)):
            row = None  # the accounting never heard of its end
        if alive and row is None:
            return False  # not known is not gone: its word may still come
        if word is None and row is None and begun is None and not known.record.cancelled:
            # Lost before it began. Nobody has run it, so it may be submitted again.
            number = known.record.job
            assert number is not None
            log.warning("slurm lost a job before it began", extra={"run": known.run_id, "job": number})
            known.job, known.record, known.unsure, known.missing = None, records.unsent(known.record), True, 0
            known.unsure_since, known.lost = time.monotonic(), known.lost | {number}
            await self.note(known)
            return True
        await self._finish_alone(known, row, word, begun)
        return True

    async def _may_live(self, known: KnownRun, begun: int | None) -> bool:
        """Whether a run of which Slurm has no job may run on its node, or be about to begin there."""
        if begun is None and (known.job is None or known.job.meaning.state is RunState.QUEUED):
            return False
        await self._writes(known)
        return not known.pulse.quiet(time.monotonic(), liveness.QUIET_SECONDS)

    async def take_its_word(self, known: KnownRun) -> bool:
        """End a run that has said how it ended, while Slurm calls it running; whether it is `end_ghost`'s now.

        In this order: cancelled before its end is written, it would look as if somebody had cancelled it. Its record
        stays among those that are not over until Slurm has nothing of it, so that a restart finds it there.
        """
        word, begun = await self._words(known)
        if known.record.final is not None or word is None or begun is None or begun != known.record.job:
            return False
        log.warning("slurm calls a run running that has ended", extra={"run": known.run_id, "job": begun})
        await self._finish_alone(known, None, word, begun, late=True)
        return True

    async def end_ghost(self, record: RunRecord) -> None:
        """Have Slurm end what it still has of a run that is over, however often that takes."""
        assert record.job is not None
        while True:
            try:
                job = await self._transport.job(record.job)
                if job is not None and job.run_id == record.run_id and job.meaning.state is not RunState.ENDED:
                    await step_async(self._transport.cancel, record.job, record.user)
                if await self._files.read_record(record.run_id) is not None:  # nobody has forgotten it meanwhile
                    await self._files.finish_record(record.run_id, records.dump(record))
                return
            except IsthmusError as error:
                log.warning("a job that is over cannot be cancelled", extra={"job": record.job, "error": str(error)})
                await asyncio.sleep(GHOST_SECONDS)

    async def _finish_alone(
        self, known: KnownRun, row: Accounted | None, word: Word | None, begun: int | None, *, late: bool = False
    ) -> None:
        """The run is over, and Slurm shows no job of it that would say how."""
        evidence = Evidence(
            known.record,
            None,
            row,
            word,
            begun is not None,
            units=await self.units(known),
            power=self.power,
            services=self.facts.services,
        )
        final = observations.over(evidence)
        lost = final.reason is EndReason.SUPERVISOR_LOST
        await self.finish(known, final, late=late or lost)
        if lost and known.record.final is final:
            self.lost.add(known.record)

    async def _hear(self, record: RunRecord, given_up: bool) -> RunRecord | None:
        """Whether a run that was called lost has left word: then that is its end."""
        word, begun = await self._words(KnownRun(record))
        if word is None and not given_up:
            return None
        heard = record
        if word is not None:
            final = observations.over(Evidence(replace(record, final=None), word=word, begun=begun is not None))
            heard = record.ended(final)
        return heard if await self._files.finish_record(record.run_id, records.dump(heard)) else record

    async def search(self, known: KnownRun, since: float) -> Accounted | None:
        """The row of a run in the accounting, if there is any, asked for since a moment; raises SiteUnavailable."""
        if not self.facts.accounting:
            return None
        folder, record = self._files.folder(known.run_id), known.record
        return await self._search.find(Sought(record.user, f"{folder}/work", record.sent_at, since, known.lost))

    async def close(self) -> None:
        """Let go."""
        await self._search.close()

    async def finish(self, known: KnownRun, final: Observation, *, late: bool = False) -> None:
        """The run is over: write it down; beside those that are not over, while its accounting is late."""
        write = self._files.write_record if late else self._files.finish_record
        async with known.writing:
            if await write(known.run_id, records.dump(known.record.ended(final))):
                known.record = known.record.ended(final)
            else:
                await self._take_end(known)

    async def note(self, known: KnownRun) -> bool:
        """Write down what is known of a run; False if it is over: then that is known now."""
        async with known.writing:
            if not await self._files.write_record(known.run_id, records.dump(known.record)):
                await self._take_end(known)
            return known.record.final is None

    async def _take_end(self, known: KnownRun) -> None:
        """Somebody else wrote down how it ended: that counts."""
        if known.record.final is None:
            kept = records.load(known.run_id, await self._files.read_record(known.run_id) or b"")
            if kept.final is None:
                raise SiteUnavailable(f"How run {known.run_id} ended cannot be read")
            known.record = known.record.ended(kept.final)

    async def units(self, known: KnownRun) -> Mapping[str, tuple[str, ...]]:
        """Which units of its devices a run was given; looked up once."""
        if known.record.devices and not known.units:
            text = await self._files.read(LogFile(known.run_id, known.record.user, "units"))
            known.units = parsing.units((text or b"").decode(errors="replace"))
        return known.units

    async def _words(self, known: KnownRun) -> Words:
        """What the script wrote at the end, and which job began the run."""
        user = known.record.user
        ended = await self._files.read(LogFile(known.run_id, user, "ended"))
        if ended is not None and (word := observations.read_word(ended.decode(errors="replace"))) is not None:
            return word, word.job
        begun = await self._files.read(LogFile(known.run_id, user, "begun"))
        first = (begun or b"").split(b" ")[0]
        return None, whole(first, 10)

    async def _tail(self, known: KnownRun) -> str:
        content = await self._files.read(LogFile(known.run_id, known.record.user, "slurm.out")) or b""
        return _last_line(content)

    async def _last_words(self, known: KnownRun) -> str:
        name = "stderr" if known.record.separate_streams else "stdout"
        return _last_line(await self._files.read(LogFile(known.run_id, known.record.user, name)) or b"")


def _last_line(content: bytes) -> str:
    lines = [line for line in content.decode(errors="replace").splitlines() if line.strip()]
    shown = lines[-1].removeprefix("isthmus: ")[:500] if lines else ""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in shown)


def _same(row: Accounted, job: SlurmJob | None) -> bool:
    """Numbers are used again after a cold start: the accounting may have an older job under this one."""
    if job is None or (row.user and job.user and row.user != job.user):
        return False
    if row.submitted_at is None or job.submitted_at is None:
        return True
    return abs((row.submitted_at - job.submitted_at).total_seconds()) <= 2
