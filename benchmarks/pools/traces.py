"""Traces of jobs: read from the Standard Workload Format, or generated from a seed.

A trace has jobs of two pools, `slurm` and `kubernetes`. Where a file does not say whose a job is, users are divided:
the jobs on one machine of every second user go to `kubernetes`, everything else to `slurm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from isthmus.errors import Invalid

SLURM, KUBERNETES = "slurm", "kubernetes"
DAY = 86_400.0
WIDTHS = (1, 1, 1, 1, 1, 2, 2, 4, 4, 8)
"""How wide batch jobs are."""
FIELDS = 18


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job as it was sent."""

    submitted: float
    pool: str
    hosts: int
    seconds: float
    asked: float
    """The time limit that its owner gave."""


class Pattern(StrEnum):
    """How generated work comes."""

    OPPOSITE = "opposite"
    """Batch work by day, services' work by night."""
    BURSTS = "bursts"
    """Steady batch work, and sudden bursts of short work."""
    STEADY = "steady"
    """Both all the time, with the same load."""


def generated(pattern: Pattern, hosts: int, days: float, load: float, seed: int) -> list[TracedJob]:
    """A trace that keeps `hosts` machines busy for the part `load` of the time."""
    random = Random(f"{pattern}/{hosts}/{seed}")
    jobs: list[TracedJob] = []
    for pool in (SLURM, KUBERNETES):
        work, wanted = 0.0, days * DAY * hosts * load / 2
        while work < wanted:
            at = _moment(pattern, pool, days, random)
            many = random.randint(20, 3 * hosts) if pattern is Pattern.BURSTS and pool == KUBERNETES else 1
            for _ in range(many):
                job = _job(pool, at + random.uniform(0, 30), hosts, random)
                jobs.append(job)
                work += job.hosts * job.seconds
    return sorted(jobs, key=lambda job: job.submitted)


def _moment(pattern: Pattern, pool: str, days: float, random: Random) -> float:
    """When a job is sent: by day and by night with different likelihood."""
    while True:
        at = random.uniform(0, days * DAY)
        if pattern is not Pattern.OPPOSITE:
            return at
        height = 0.5 + 0.5 * math.sin(2 * math.pi * at / DAY)
        if random.random() < 0.05 + 0.95 * (height if pool == SLURM else 1 - height):
            return at


def _job(pool: str, at: float, hosts: int, random: Random) -> TracedJob:
    median, spread = (1200.0, 1.4) if pool == SLURM else (240.0, 1.0)
    seconds = min(12 * 3600.0, max(5.0, random.lognormvariate(math.log(median), spread)))
    width = min(random.choice(WIDTHS), max(1, hosts // 4)) if pool == SLURM else 1
    return TracedJob(at, pool, width, seconds, seconds * random.choice((1.1, 2, 4)))


def swf(lines: Iterable[str], cores: int) -> Iterator[TracedJob]:
    """The jobs of a file in the Standard Workload Format; `cores` is how many processors a machine has."""
    for number, line in enumerate(lines, 1):
        text = line.split(";", 1)[0].split()
        if not text:
            continue
        if len(text) < FIELDS:
            raise Invalid(f"line {number}: {len(text)} fields; the Standard Workload Format has {FIELDS}")
        try:
            field = [float(word) for word in text[:FIELDS]]
        except ValueError:
            raise Invalid(f"line {number}: a field is not a number: {line.strip()[:80]!r}") from None
        submitted, seconds = field[1], field[3]
        processors = field[4] if field[4] > 0 else field[7]
        if seconds <= 0 or processors <= 0:
            continue  # never ran
        hosts = math.ceil(processors / cores)
        pool = KUBERNETES if hosts == 1 and int(field[11]) % 2 else SLURM
        yield TracedJob(submitted, pool, hosts, seconds, max(seconds, field[8]))
