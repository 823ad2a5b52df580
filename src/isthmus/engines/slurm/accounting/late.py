"""Accounting that runs behind: what is reported of a run is corrected when it has caught up.

The end of a run is reported as soon as what can be known soon is known. Accounting that has not heard of it then is
asked again, ever less often and for a quarter of an hour; until it answers, what the job itself wrote down is shown.
What it says is written into the run's record and reported like every other change. Until then the record stays among
those of runs that are not over, with the end that was reported in it: a control plane that is restarted in between
finds it there and asks again, as long as Slurm still shows the job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from isthmus.engines.base import Observation
from isthmus.engines.slurm.facts import Accounted, SlurmJob
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.base import RunFiles
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.observing import observations
from isthmus.engines.slurm.observing.observations import Evidence
from isthmus.errors import IsthmusError

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
GIVEN_UP_AFTER = 900.0
TOGETHER = 100
"""Runs that are corrected at once."""

Ask = Callable[[Sequence[SlurmJob]], Awaitable[dict[int, Accounted]]]
Share = Callable[[SlurmJob, float], Awaitable[float]]
"""A job's part of its nodes' energy, by jobs as they were at a moment or later."""


@dataclass(frozen=True, slots=True)
class Late:
    """A run whose end was reported without the accounting."""

    evidence: Evidence
    job: SlurmJob
    reported: Observation
    until: float


class LateAccounting:
    """Asks the accounting again."""

    def __init__(self, ask: Ask, files: RunFiles, share: Share) -> None:
        self._ask, self._files, self._share = ask, files, share
        self._late: dict[str, Late] = {}
        self._some = asyncio.Event()
        self.pause = FIRST_PAUSE

    def add(self, evidence: Evidence, job: SlurmJob, reported: Observation) -> None:
        """The accounting has not heard of this run's end."""
        until = time.monotonic() + GIVEN_UP_AFTER
        self._late[evidence.record.run_id] = Late(evidence, job, reported, until)
        self.pause = min(self.pause, FIRST_PAUSE)
        self._some.set()

    def drop(self, run_id: str) -> None:
        """Nobody wants to know any more."""
        self._late.pop(run_id, None)

    def awaits(self, run_id: str) -> bool:
        """Whether what is said of a run may still change."""
        return run_id in self._late

    async def run(self, corrected: Callable[[RunRecord], None]) -> None:
        """Ask until cancelled; `corrected` is given each record that changed."""
        while True:
            await self._some.wait()
            await asyncio.sleep(self.pause)
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
            asked = time.monotonic()
            rows = await self._ask([late.job for late in self._late.values()])
            # Together: what is written down goes to the disk, or over the line, in few pieces.
            known = [(run_id, late, rows.get(late.job.id)) for run_id, late in self._late.items()]
            for start in range(0, len(known), TOGETHER):
                some = known[start : start + TOGETHER]
                await asyncio.gather(*(self._look(*one, asked, corrected) for one in some))
            if not self._late:
                self._some.clear()

    async def _look(
        self, run_id: str, late: Late, row: Accounted | None, asked: float, corrected: Callable[[RunRecord], None]
    ) -> None:
        if row is not None and row.whole:
            await self._correct(run_id, late, row, asked, corrected)
        elif time.monotonic() > late.until:
            await self._settle(run_id, late.evidence.record.ended(late.reported))

    async def _correct(
        self, run_id: str, late: Late, row: Accounted, asked: float, corrected: Callable[[RunRecord], None]
    ) -> None:
        evidence = replace(late.evidence, accounted=row)
        if row.energy_joules:
            try:
                evidence = replace(evidence, energy_share=await self._share(late.job, asked))
            except IsthmusError:  # it is asked for again
                return
        final = _with_energy(observations.over(evidence), late.reported)
        record = late.evidence.record.ended(final)
        if await self._settle(run_id, record) and final != late.reported:
            corrected(record)

    async def _settle(self, run_id: str, record: RunRecord) -> bool:
        """Nothing more is awaited: write it down for good. Whether that is so, and anybody still wants it."""
        try:
            written = await self._files.finish_record(run_id, records.dump(record))
        except IsthmusError as error:  # it is asked for again, or was forgotten meanwhile
            if run_id in self._late:
                log.warning("what the accounting says is not written", extra={"run": run_id, "error": str(error)})
            return False
        return self._late.pop(run_id, None) is not None and written


def _with_energy(final: Observation, reported: Observation) -> Observation:
    """What was reported of its energy stays, unless better is known: after a restart no class may be known yet."""
    if final.usage is None or reported.usage is None or final.usage.energy_joules is not None:
        return final
    energy, source = reported.usage.energy_joules, reported.usage.energy_source
    return replace(final, usage=replace(final.usage, energy_joules=energy, energy_source=source))
