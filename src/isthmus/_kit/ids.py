"""Identifiers: uids that are never used twice and sort by birth, and short suffixes that people can read aloud."""

from __future__ import annotations

import os
import threading
import time

# No vowels and no look-alikes, so that a suffix is never a word and is easy to read aloud.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FAIR = 256 - 256 % len(_ALPHABET)

_lock = threading.Lock()
_last = 0


def new_uid() -> str:
    """A UUID of version 7: random, and later ones of this process sort after earlier ones, also within a
    millisecond and when the clock steps back."""
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 of their fraction: four thousand uids per millisecond stay in order.
        _last = stamp = max(_last + 1, time.time_ns() * 4096 // 1_000_000)
    # os.urandom, not secrets and uuid: importing those takes longer than many a command of ours.
    drawn = int.from_bytes(os.urandom(8)) >> 2
    text = f"{(stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | drawn:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def suffix(length: int = 5) -> str:
    """A random readable ending for a name, such as `x7k2p`."""
    found = ""
    while len(found) < length:
        # Bytes beyond the largest multiple of the alphabet's size are drawn again: every letter is equally likely.
        found += "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(length) if byte < _FAIR)
    return found[:length]
