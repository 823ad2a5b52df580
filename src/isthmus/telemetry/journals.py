"""Reading journals: from a sampler's lines to points of series. Pure.

Counted things (cpu seconds, joules) become rates between two samples; what is not known, or makes no sense because a
clock was set or a counter began anew, makes no point. `engines/sampling.py` says how the lines are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

CPU, MEMORY, POWER, DEVICE = "cpu", "memory", "power", "device"
UNITS = {CPU: "cores", MEMORY: "bytes", POWER: "watts", DEVICE: "fraction"}
REPORTED = "reported."
MAX_LINE = 256


class Sample(NamedTuple):
    """One line."""

    at: float
    cpu_seconds: float | None = None
    memory_bytes: float | None = None
    joules: float | None = None
    estimated: bool = False
    device_use: float | None = None
    output_bytes: float | None = None


class Point(NamedTuple):
    """One value of one series."""

    name: str
    at: float
    value: float


def parse(data: bytes) -> tuple[list[Sample], int]:
    """The samples of the whole lines, and how many bytes those are. A line that is damaged is passed over."""
    end = data.rfind(b"\n") + 1
    if not end and len(data) > MAX_LINE:
        end = len(data)  # no line of ours is that long
    return [sample for text in data[:end].split(b"\n") if (sample := _sample(text)) is not None], end


def _sample(text: bytes) -> Sample | None:
    words = text.split()
    if len(words) != 6 or len(text) > MAX_LINE:
        return None
    try:
        estimated = words[3].endswith(b"~")
        at, cpu, memory, joules, device, output = (_number(word.rstrip(b"~")) for word in words)
    except ValueError:
        return None
    return None if at is None else Sample(at, cpu, memory, joules, estimated, device, output)


def _number(word: bytes) -> float | None:
    if word == b"-":
        return None
    number = float(word)
    if not math.isfinite(number) or number < 0:
        raise ValueError(word)
    return number


def points(samples: Iterable[Sample], last: Sample | None) -> list[Point]:
    """The points that samples make, after the last one that was read before them."""
    found: list[Point] = []
    for sample in samples:
        found += [Point(MEMORY, sample.at, sample.memory_bytes)] if sample.memory_bytes is not None else []
        found += [Point(DEVICE, sample.at, min(1.0, sample.device_use))] if sample.device_use is not None else []
        if last is not None:
            for name, now, before in (
                (CPU, sample.cpu_seconds, last.cpu_seconds),
                (POWER, sample.joules, last.joules),
            ):
                if (rate := _rate(now, before, sample.at - last.at)) is not None:
                    found.append(Point(name, sample.at, rate))
        last = sample
    return found


def _rate(now: float | None, before: float | None, seconds: float) -> float | None:
    if now is None or before is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds


def first_of(started: float | None) -> Sample | None:
    """What was used when the run began: no cpu time. With it the first sample makes a point too.

    Meters may begin a moment after the run; of power the first point is that between the first two samples.
    """
    return None if started is None else Sample(started, 0.0, 0.0, output_bytes=0.0)
