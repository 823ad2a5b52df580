"""What a running trial has reported so far, read from its output: kept in memory, and read again after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from isthmus.engines.base import Stream
from isthmus.errors import IsthmusError
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.telemetry.reports import Reader, Report, steps_of

from .comparing import RunResult

PIECE = 256 * 2**10
MAX_BYTES = 16 * 2**20
"""Of a trial's output that are searched."""
MAX_REPORTS = 10_000


@dataclass(slots=True)
class _Seen:
    offset: int = 0
    reader: Reader = field(default_factory=Reader)
    reports: list[Report] = field(default_factory=list)


class Steps:
    """Reads outputs as they grow."""

    def __init__(self, engines: EngineRegistry) -> None:
        self._engines = engines
        self._seen: dict[str, _Seen] = {}

    async def of(self, run: RunResult, name: str) -> Mapping[int, float]:
        """The values of a name by step, as far as the run has come."""
        seen = self._seen.setdefault(run.run_id, _Seen())
        engine = self._engines.reader(run.site or "")
        while engine is not None and seen.offset < MAX_BYTES and len(seen.reports) < MAX_REPORTS:
            try:
                data = await engine.read_log(run.run_id, Stream.STDOUT, seen.offset, PIECE)
            except IsthmusError:
                break  # not begun, or its site does not answer: what is known so far counts
            if not data:
                break
            seen.offset += len(data)
            seen.reports += seen.reader.feed(data)
        return steps_of(seen.reports, name)

    def forget(self, run_ids: Iterable[str]) -> None:
        """The experiment is over."""
        for run_id in run_ids:
            self._seen.pop(run_id, None)
