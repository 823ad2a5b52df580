"""Durations as people write them: `90s`, `1h30m`, `2d`, `01:30:00`, `1-12:00:00` (Slurm), `PT1H30M` (ISO 8601).

A bare number is refused: Slurm means minutes by it, most other programs seconds. The length is checked before anything
else, and no pattern here can go back over what it has read.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_LENGTH = 64
"""Characters of a duration. All forms together fit into half of it."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORD = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_WORDS = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d|w))+")
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9]))?")
_ISO = re.compile(
    r"P(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?", re.IGNORECASE
)
_REMEDY = "write it like 90s, 1h30m, 2d, 01:30:00 or PT1H30M"


def parse_duration(text: str) -> float:
    """Seconds of a written duration; raises ValueError with the remedy."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"{text[:20]!r}… is longer than the {MAX_LENGTH} characters of a duration; {_REMEDY}")
    return _parse(text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> float:
    stripped = text.strip()
    if _WORDS.fullmatch(stripped):
        return sum(float(number) * _UNITS[unit] for number, unit in _WORD.findall(stripped))
    if clock := _CLOCK.fullmatch(stripped):
        days, first, second, third = clock.groups()
        if third is None and days is None:
            raise ValueError(f"{text!r} could be hours:minutes or minutes:seconds; {_REMEDY}")
        hours, minutes, seconds = int(first), int(second), int(third or 0)
        return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)
    if len(stripped) > 2 and not stripped.upper().endswith("T") and (iso := _ISO.fullmatch(stripped)):
        weeks, days, h, m, s = (float(part or 0) for part in iso.groups())
        return weeks * 604800 + days * 86400 + h * 3600 + m * 60 + s
    raise ValueError(f"{text!r} is not a duration; {_REMEDY}")


def format_duration(seconds: float) -> str:
    """The shortest usual form: `0s`, `450ms`, `90s` becomes `1m30s`, `86400` becomes `1d`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)}ms" if seconds else "0s"
    rest = round(seconds)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
