"""The journal of a run: what it used, sampled while it runs, one line at a time. Standard library only.

```
<unix time> <cpu seconds> <memory bytes> <joules> <device use> <bytes of output>
1763258400.125 12.500 104857600 310.250~ 0.80 4096
```

Cpu seconds and joules are counted since the start, so that a lost line loses nothing; `~` marks joules that are
estimated, `-` what is not known. The bytes of output at that time say later when a line of it was written. The file
only grows. The pause between samples grows with the run's age, from a second to a quarter of a minute: a run of a day
has some six thousand lines.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SHORTEST, LONGEST = 1.0, 15.0
"""Seconds between two samples, of a young and of an old run."""
_RELATIVE = 300.0
MAX_BYTES = 16 * 2**20
"""A journal that long (a run of half a year) is not continued."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run has used up to now. None: not known."""

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    joules: float | None = None
    estimated: bool = False
    device_use: float | None = None
    output_bytes: int | None = None


def pause(age: float) -> float:
    """Seconds until the next sample of a run that is so old."""
    return min(LONGEST, max(SHORTEST, age / _RELATIVE))


def line(at: float, seen: Reading) -> bytes:
    """One line of the journal."""
    joules = "-" if seen.joules is None else f"{seen.joules:.3f}{'~' if seen.estimated else ''}"
    words = (
        f"{at:.3f}",
        "-" if seen.cpu_seconds is None else f"{seen.cpu_seconds:.3f}",
        "-" if seen.memory_bytes is None else str(seen.memory_bytes),
        joules,
        "-" if seen.device_use is None else f"{seen.device_use:.2f}",
        "-" if seen.output_bytes is None else str(seen.output_bytes),
    )
    return " ".join(words).encode() + b"\n"


def append(path: Path, text: bytes) -> None:
    """Add a line. A disk that is full costs samples, never the run."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    try:
        if os.fstat(fd).st_size < MAX_BYTES:
            os.write(fd, text)
    except OSError:
        return
    finally:
        os.close(fd)
