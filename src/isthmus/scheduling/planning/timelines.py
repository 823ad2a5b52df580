"""Timelines: what a site has free, from now on, as jobs are expected to end and others to start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf

from isthmus.scheduling.demands import Room

MOST_ENDS = 64
"""Ends of running jobs that are kept apart. Of more, neighbours are taken together, at the later time."""
_CLOSE = 1e-6

Vector = tuple[int, ...]


class Timeline:
    """Free room as a step function of time. The last step lasts for ever."""

    __slots__ = ("_names", "amounts", "moments")

    def __init__(self, now: float, capacity: Room, taken: Iterable[tuple[float, Room]] = ()) -> None:
        """`taken`: rooms that are in use now, and until when."""
        self._names = ("cpus", "memory", *(name for name, _ in capacity.devices))
        self.moments = [now]
        self.amounts = [tuple(capacity.of(name) for name in self._names)]
        for end, room in _grouped(taken):
            self._add(room, now, max(end, now + _CLOSE), -1)

    def copy(self) -> Timeline:
        """One to try something on."""
        made = Timeline.__new__(Timeline)
        made._names, made.moments, made.amounts = self._names, self.moments.copy(), self.amounts.copy()
        return made

    def earliest(self, room: Room, seconds: float, after: float = -inf) -> float | None:
        """The first moment from which the room stays free for so long; None: never."""
        wanted = self._vector(room)
        if wanted is None:
            return None
        times, free = self.moments, self.amounts
        at = max(0, bisect_right(times, after + _CLOSE) - 1)
        start = max(after, times[at])
        for index in range(at, len(times)):
            if any(w > f for w, f in zip(wanted, free[index], strict=True)):
                if index + 1 == len(times):
                    return None
                start = times[index + 1]
            elif index + 1 == len(times) or times[index + 1] >= start + seconds - _CLOSE:
                return start
        return None

    def take(self, room: Room, start: float, end: float) -> None:
        """Somebody gets the room for that time."""
        self._add(room, start, end, -1)

    def give(self, room: Room, start: float, end: float) -> None:
        """The room becomes free for that time after all."""
        self._add(room, start, end, 1)

    def free_at(self, moment: float) -> Room:
        """What is free."""
        free = self.amounts[max(0, bisect_right(self.moments, moment + _CLOSE) - 1)]
        return Room(free[0], free[1], tuple(zip(self._names[2:], free[2:], strict=True)))

    def _vector(self, room: Room) -> Vector | None:
        if any(name not in self._names for name, count in room.devices if count):
            return None
        return tuple(room.of(name) for name in self._names)

    def _add(self, room: Room, start: float, end: float, sign: int) -> None:
        change = tuple(sign * room.of(name) for name in self._names)
        first, last = self._split(start), self._split(end) if end < inf else len(self.moments)
        for index in range(first, last):
            self.amounts[index] = tuple(f + c for f, c in zip(self.amounts[index], change, strict=True))

    def _split(self, moment: float) -> int:
        """The index of the step that begins at a moment, made if there is none."""
        at = bisect_right(self.moments, moment + _CLOSE) - 1
        if at < 0:
            return 0
        if self.moments[at] < moment - _CLOSE:
            at += 1
            self.moments.insert(at, moment)
            self.amounts.insert(at, self.amounts[at - 1])
        return at


def _grouped(taken: Iterable[tuple[float, Room]]) -> list[tuple[float, Room]]:
    ends: dict[float, Room] = {}
    for end, room in taken:
        ends[end] = ends[end].plus(room) if end in ends else room
    if len(ends) <= MOST_ENDS:
        return sorted(ends.items(), key=lambda item: item[0])
    ordered = sorted(ends)
    size = -(-len(ordered) // MOST_ENDS)
    found = []
    for at in range(0, len(ordered), size):
        group = ordered[at : at + size]
        together = Room()
        for end in group:
            together = together.plus(ends[end])
        found.append((group[-1], together))
    return found
