"""Time as data. Decisions take `now` as an argument; only the edges of the program call `utcnow`."""

from __future__ import annotations

from datetime import UTC, datetime

MAX_LENGTH = 64
"""Characters of a time. Nanoseconds and an offset take 35."""


def utcnow() -> datetime:
    """The present moment, with its zone."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as all times in objects are written."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> datetime:
    """Read RFC 3339. A time without a zone is refused: nobody could know what it means."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{text[:20]!r}… is longer than a time; write it like 2026-01-31T18:00:00Z")
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write it like 2026-01-31T18:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add Z for UTC or an offset such as +01:00")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999 in UTC") from None
