"""Sending a run: Slurm hears of nothing before the record is there.

Whatever sends it (`sbatch`, mostly) takes longer to start than the record takes to be made. So both are begun together,
and the script, without which `sbatch` sends nothing, is handed over when the record is there. Whoever is killed before
leaves a record or none, and no job.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from isthmus._kit.crashpoints import step_async

from .batch.submissions import Submission
from .facts import SlurmJob
from .observing.settling import KnownRun
from .observing.snapshots import JobSnapshot, JobWatcher
from .transports.base import SlurmTransport

NOTE_DELAY = 0.05
"""Seconds before the number of a job is written down: several go together, and in nobody's way."""
NOTE_SECONDS = 5.0
"""How long the numbers of jobs that were just sent are waited for at the end; without them Slurm is searched."""


class AlreadyBegun(Exception):
    """There is a record of the run."""


async def as_it_is(known: KnownRun) -> KnownRun:
    """For a run that has its record."""
    return known


async def send(
    transport: SlurmTransport, watcher: JobWatcher, wanted: Submission, begin: Callable[[], Awaitable[KnownRun]]
) -> KnownRun:
    """Send a run whose record is made by `begin`; raises what that raises, EngineRefused, SiteUnavailable."""
    known: KnownRun | None = None

    async def ready() -> None:
        nonlocal known
        known = await begin()
        known.unsure = known.sending = True  # until the answer is there
        watcher.sending()

    try:
        number = await step_async(transport.submit, wanted, ready)
    finally:
        if known is not None:
            known.sending, known.unsure_since = False, time.monotonic()
    assert known is not None
    sent_at = datetime.now(UTC)
    known.adopt(SlurmJob(number, ("PENDING",), user=wanted.user, comment=wanted.comment, submitted_at=sent_at))
    return known


def pick(known: KnownRun, snapshot: JobSnapshot) -> SlurmJob | None:
    """The run's job among those with its mark: the one that was noted, or the first. Others do nothing."""
    found = [job for job in snapshot.ours.get(known.run_id, ()) if job.user in ("", known.record.user)]
    if not found:
        return None
    return next((job for job in found if job.id == known.record.job), found[0])
