"""Acts: what the audit log keeps of one request, within bounds, and which repetitions it leaves out. Pure.

Names, addresses and programs come from whoever sends the request, so each has a limit and holds printable ASCII only:
a line is a line, and no terminal obeys it. Bodies, queries, tokens and messages are never kept.

Who is refused again and again fills no disk: of one person or address the first few in a minute are kept in full, the
others are counted, and the count is kept when the minute is over. Reading is kept once in ten minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MOST = {"user": 253, "credential": 96, "address": 64, "agent": 120, "verb": 24, "resource": 96, "namespace": 80,
        "name": 256}  # fmt: skip


class ActOutcome(StrEnum):
    """What became of an act."""

    ALLOWED = "allowed"
    """It was done."""
    REFUSED = "refused"
    """Nobody was recognised, or they have not the right."""
    FAILED = "failed"
    """They may, but it could not be done: it was invalid, was not there, or something broke."""


@dataclass(frozen=True, slots=True)
class Act:
    """One request."""

    user: str
    credential: str
    address: str
    agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int

    @property
    def outcome(self) -> ActOutcome:
        """What became of it."""
        if self.code in (401, 403):
            return ActOutcome.REFUSED
        return ActOutcome.ALLOWED if self.code < 400 else ActOutcome.FAILED

    def fields(self) -> dict[str, Any]:
        """As it is kept; what is empty is left out."""
        kept: dict[str, Any] = {
            name: text for name, most in MOST.items() if (text := bounded(getattr(self, name), most))
        }
        return {**kept, "outcome": self.outcome.value, "code": self.code}


def bounded(text: str, most: int) -> str:
    """Printable ASCII of at most so many characters; a longer text ends in `...`, what cannot be printed is `?`."""
    if len(text) > most:
        text = text[: most - 3] + "..."
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text)


@dataclass(slots=True)
class _Window:
    begun: float
    seen: int = 0


class Repetitions:
    """Counts what repeats. Memory is bounded: the oldest are forgotten, and their counts are kept first."""

    def __init__(self, *, seconds: float, free: int, most: int = 10_000) -> None:
        """`free`: how often in so many seconds something is kept in full."""
        self._seconds, self._free, self._most = seconds, free, most
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()

    def keeps(self, key: tuple[str, ...], now: float) -> bool:
        """Whether this one is kept in full; otherwise it is counted. What is due is taken first."""
        window = self._windows.setdefault(key, _Window(now))
        window.seen += 1
        return window.seen <= self._free

    def due(self, now: float) -> list[tuple[tuple[str, ...], int]]:
        """What was counted in windows that are over, with how often. They are forgotten."""
        found = []
        while self._windows:
            key, window = next(iter(self._windows.items()))
            over = not 0 <= now - window.begun < self._seconds
            if not over and len(self._windows) <= self._most:
                break
            del self._windows[key]
            if window.seen > self._free:
                found.append((key, window.seen - self._free))
        return found
