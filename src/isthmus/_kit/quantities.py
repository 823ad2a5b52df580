"""Amounts as Kubernetes writes them: `500m` of a cpu, `4Gi` of memory. Kept as whole numbers of the small unit.

The length is checked before anything else: the value of a number grows with it, and so does the work.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

MAX_LENGTH = 32
"""Characters of an amount."""
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)")
_BYTES = {
    "": 1, "B": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


def parse_bytes(text: str | int) -> int:
    """Bytes of `512`, `100M`, `4Gi`."""
    return _bytes(_bounded(text))


def parse_cpus(text: str | int | float) -> int:
    """Thousandths of a cpu of `2`, `0.5` or `500m`."""
    return _cpus(_bounded(text))


def _bounded(text: str | int | float) -> str:
    written = text if isinstance(text, str) else str(text)
    if len(written) > MAX_LENGTH:
        raise ValueError(f"{written[:20]!r}… is longer than the {MAX_LENGTH} characters of an amount")
    return written


@lru_cache(maxsize=1024)
def _bytes(text: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    if not match or match[2] not in _BYTES:
        raise ValueError(f"{text!r} is not a size; write it like 512Mi, 4Gi or 2G")
    return int(Decimal(match[1]) * _BYTES[match[2]])


@lru_cache(maxsize=1024)
def _cpus(text: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    if not match or match[2] not in ("", "m"):
        raise ValueError(f"{text!r} is not a number of CPUs; write it like 2, 0.5 or 500m")
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number of CPUs") from None
    return int(number if match[2] else number * 1000)


def scaled_bytes(count: float) -> tuple[str, str]:
    """`1268000` becomes `1.21` and `Mi`: as many digits as people read. Below 1024 every byte counts."""
    size = float(count)
    if abs(size) < 1024:
        return f"{size:.4g}", ""
    for unit in ("Ki", "Mi", "Gi", "Ti"):
        size /= 1024
        if abs(size) < 999.5:  # above, three digits would not be enough
            return f"{size:.3g}", unit
    return f"{size / 1024:.3g}", "Pi"


def format_bytes(count: float) -> str:
    """`1536` becomes `1.5Ki`."""
    return "".join(scaled_bytes(count))


def format_unequal_bytes(one: int, other: int) -> tuple[str, str]:
    """Two amounts that are compared, so that one sees the difference."""
    shown = format_bytes(one), format_bytes(other)
    return shown if shown[0] != shown[1] else (f"{one}B", f"{other}B")


def format_cpus(milli: int) -> str:
    """`1500` becomes `1500m`, `2000` becomes `2`."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
