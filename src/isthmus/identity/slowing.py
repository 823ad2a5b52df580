"""Slowing down who presents bad credentials again and again.

Each failure is noted for the address it came from and for the name in the token. The answer to the next failure waits
longer, up to a second; a pause forgives. Good credentials are never slowed down, whoever else uses the address. When
too many answers to one address wait already, further credentials from there that are not known yet are not even looked
at. Memory is bounded: the oldest notes go.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from isthmus.errors import Unavailable

FREE_FAILURES = 5
"""Failures that cost nothing: people mistype."""
STEP_SECONDS, LONGEST_SECONDS = 0.05, 1.0
FORGIVEN_SECONDS = 60.0
AT_ONCE = 32
"""Answers to one address that wait at the same time."""
REMEMBERED = 10_000


@dataclass(slots=True)
class _Note:
    failures: int = 0
    last: float = 0.0
    waiting: int = 0


class Slowing:
    """What is known of failures."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._notes: OrderedDict[str, _Note] = OrderedDict()
        self.waiting = 0
        """Answers that wait, to all addresses."""

    def check(self, address: str) -> None:
        """Raise Unavailable when too many failures of an address wait for their answer."""
        note = self._notes.get(address)
        if note is not None and note.waiting >= AT_ONCE:
            raise Unavailable("too many requests with bad credentials come from this address", retry_after=5)

    async def failed(self, address: str, name: str) -> None:
        """Note a failure, and wait as long as the failures before it demand."""
        notes = [self._note(key) for key in (address, f"token {name[:64]}")]
        delay = max(self._delay(note) for note in notes)
        now = self._clock()
        for note in notes:
            note.failures, note.last = note.failures + 1, now
        if delay > 0:
            notes[0].waiting += 1
            self.waiting += 1
            try:
                await asyncio.sleep(delay)
            finally:
                notes[0].waiting -= 1
                self.waiting -= 1

    def _note(self, key: str) -> _Note:
        note = self._notes.setdefault(key, _Note())
        self._notes.move_to_end(key)
        if self._clock() - note.last > FORGIVEN_SECONDS:
            note.failures = 0
        while len(self._notes) > REMEMBERED:
            self._notes.popitem(last=False)
        return note

    @staticmethod
    def _delay(note: _Note) -> float:
        return min(LONGEST_SECONDS, STEP_SECONDS * max(0, note.failures - FREE_FAILURES + 1))
