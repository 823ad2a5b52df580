"""Runs that were called lost: one that leaves word of its end after all has that end.

Silence is no proof. A node that was cut off from the shared file system for longer than anybody waits may come back,
and the program with it. So the record of a run that was called lost stays among those that are not over, with that end
in it, and the run's folder is looked into now and then, for a day, also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from isthmus.engines.slurm.files.records import RunRecord
from isthmus.errors import IsthmusError

log = logging.getLogger(__name__)

PAUSE = 30.0
GIVEN_UP_AFTER = 86400.0

Hear = Callable[[RunRecord, bool], Awaitable[RunRecord | None]]
"""The record of a run with the end that it has left word of, written down; None if it has not, and may still."""


class LostRuns:
    """Listens for runs that were called lost."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._lost: dict[str, tuple[RunRecord, float]] = {}
        self._some = asyncio.Event()

    def add(self, record: RunRecord) -> None:
        """This one was called lost."""
        self._lost[record.run_id] = record, time.monotonic() + GIVEN_UP_AFTER
        self._some.set()

    def drop(self, run_id: str) -> None:
        """Nobody wants to know any more."""
        self._lost.pop(run_id, None)

    async def run(self, corrected: Callable[[RunRecord], None]) -> None:
        """Look until cancelled; `corrected` is given each record that changed."""
        while True:
            await self._some.wait()
            await asyncio.sleep(PAUSE)
            for run_id, (record, until) in list(self._lost.items()):
                try:
                    heard = await self._hear(record, time.monotonic() > until)
                except IsthmusError as error:  # it is looked at again
                    log.info("a lost run cannot be looked at", extra={"run": run_id, "error": str(error)})
                    continue
                if heard is not None and self._lost.pop(run_id, None) is not None and heard != record:
                    corrected(heard)
            if not self._lost:
                self._some.clear()
