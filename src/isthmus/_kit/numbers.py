"""Numbers in text that anybody may have written: ASCII digits of bounded length, or nothing.

Python's own `int` and `isdigit` know the digits of all scripts, and not the same ones (`"²".isdigit()` is true and
`int("²")` fails); `float` knows infinities and exponents; and a number of a million digits takes its time.
"""

from __future__ import annotations

import re

MOST_DIGITS = 18
"""A number of so many digits fits 64 bits."""
_DECIMAL = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)


def whole(text: str | bytes, digits: int = MOST_DIGITS) -> int | None:
    """A number that is written in at most so many ASCII digits; None for anything else."""
    if not 0 < len(text) <= digits or not text.isascii() or not text.isdigit():
        return None
    return int(text)


def decimal(text: str) -> float | None:
    """A number that is written in ASCII digits, with or without a fraction; None for anything else."""
    return float(text) if len(text) <= 2 * MOST_DIGITS + 1 and _DECIMAL.fullmatch(text) else None
