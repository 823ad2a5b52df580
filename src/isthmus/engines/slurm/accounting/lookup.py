"""Looking for runs in the accounting: one bounded question for all of whom it is not known whether Slurm had them.

After a restart there may be a thousand of them at once. A row is a run's if its working folder is the run's own. Who
asks while a question is under way waits for the next, which is for all who wait then; and an answer serves everybody
for whom it is new enough. Only the accounts in question are asked for, from shortly before the earliest was to be sent:
clocks of a cluster and of those who submit to it differ by less than five minutes, or munge would let nobody in.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isthmus._kit.batching import Batches
from isthmus.engines.slurm.facts import Accounted
from isthmus.metrics import count_task_failure

CLOCKS_DIFFER = timedelta(minutes=10)
Ask = Callable[[Sequence[str], datetime], Awaitable[list[Accounted]]]


@dataclass(frozen=True, slots=True)
class Sought:
    """A run that may have been sent."""

    user: str
    work_dir: str
    sent_at: float
    """By our clock, in seconds of the epoch."""
    unsure_since: float
    """On the monotonic clock: an older answer says nothing about it."""
    lost: frozenset[int] = frozenset()
    """Numbers under which slurmctld had it and lost it: a slurmctld that was killed leaves such rows for ever."""

    @property
    def since(self) -> datetime:
        """The earliest moment at which Slurm may have had it."""
        return datetime.fromtimestamp(self.sent_at, UTC) - CLOCKS_DIFFER


@dataclass(frozen=True, slots=True)
class _Answer:
    begun: float
    users: frozenset[str]
    since: datetime
    rows: dict[str, list[Accounted]] = field(default_factory=dict)

    def serves(self, sought: Sought) -> bool:
        return self.begun >= sought.unsure_since and sought.user in self.users and self.since <= sought.since

    def row(self, sought: Sought) -> Accounted | None:
        # Slurm 22.05 names nobody where a job has no association; the folder is a run's own.
        found = self.rows.get(sought.work_dir, ())
        return next((row for row in found if row.user in ("", sought.user) and row.id not in sought.lost), None)


class AccountingSearch:
    """Finds runs by their working folders."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._questions = Batches[Sought, Accounted | None](
            "slurm-accounting-search", self._answer, failed=count_task_failure
        )
        self._last: _Answer | None = None

    async def find(self, sought: Sought) -> Accounted | None:
        """The run's row; None: the accounting answered, and has none. Raises SiteUnavailable."""
        if self._last is not None and self._last.serves(sought):
            return self._last.row(sought)
        return await self._questions.ask(sought)

    async def close(self) -> None:
        """Let go."""
        await self._questions.close()

    async def _answer(self, asked: Sequence[Sought]) -> list[Accounted | None]:
        users = frozenset(sought.user for sought in asked)
        since, begun = min(sought.since for sought in asked), time.monotonic()
        found = await self._ask(sorted(users), since)
        self._last = _Answer(begun, users, since, _by_folder(found))
        return [self._last.row(sought) for sought in asked]


def _by_folder(rows: Sequence[Accounted]) -> dict[str, list[Accounted]]:
    found: dict[str, list[Accounted]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        found.setdefault(row.work_dir, []).append(row)
    return found
