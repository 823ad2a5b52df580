"""Packing: jobs that know what they want onto few machines, with few devices idle.

Every job begins on a machine of its own. Two packs of the same device type are merged where one machine for both
is cheaper than two, the greatest saving first, and, as long as there are more packs than machines, where it costs
least. What a merge saves depends only on the two numbers of devices, so all merges are ranked once per market and
packs of equal size are interchangeable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .models import MachineType
from .valuing import Market


@dataclass(slots=True)
class Pack:
    """Jobs on one machine, by their number."""

    device: str
    used: int
    jobs: list[int] = field(default_factory=list)
    home: str | None = None
    """The machine it is on already and stays on, as it is."""
    kind: MachineType | None = None
    """The configuration of that machine."""
    fixed: bool = False
    """Holds jobs that must not be stopped."""


class Merge(NamedTuple):
    """Two packs become one, at this extra rate, with so many devices idle. Packs are told apart by their column."""

    extra: float
    idle: int
    small: int
    large: int
    both: int


class Merges(NamedTuple):
    """All merges that a market allows, the best first; and for each column, the first it may take part in."""

    ranked: tuple[Merge, ...]
    earliest: list[int]


_TINY = 1e-15


@lru_cache(maxsize=64)
def merges_of(market: Market) -> Merges:
    """The merges of a market."""
    found = []
    for device in market.devices:
        rates, hosts = market.rates[device], market.hosts[device]
        for large in range(1, market.sizes[device]):
            for small in range(1, min(large, market.sizes[device] - large) + 1):
                both = small + large
                extra = round(rates[both] - rates[small] - rates[large], 15)
                columns = (market.index[device, count] for count in (small, large, both))
                found.append(Merge(extra, hosts[both].devices - both, *columns))
    ranked = tuple(sorted(found))
    earliest = [len(ranked)] * len(market.columns)
    for position, merge in reversed(list(enumerate(ranked))):
        earliest[merge.small] = earliest[merge.large] = position
    return Merges(ranked, earliest)


def pack(market: Market, jobs: Sequence[int], wanted: Sequence[int], limit: int) -> list[Pack] | None:
    """Packs for jobs that want the given columns; None if they need more than `limit` machines."""
    if float(market.slots[list(wanted)].sum()) > limit + 1e-9:
        return None
    counts = [0] * len(market.columns)
    for column in wanted:
        counts[column] += 1
    steps = _merge(market, counts, len(jobs), limit)
    if steps is None:
        return None
    heaps: list[list[list[int]]] = [[] for _ in market.columns]
    for job, column in zip(jobs, wanted, strict=True):
        heaps[column].append([job])
    for merge, times in steps:
        for _ in range(times):
            large, small = heaps[merge.large].pop(), heaps[merge.small].pop()
            heaps[merge.both].append(large + small)
    return [Pack(*column, group) for column, heap in zip(market.columns, heaps, strict=True) for group in heap]


def _merge(market: Market, counts: list[int], total: int, limit: int) -> list[tuple[Merge, int]] | None:
    """Which merges, how often, until no more than `limit` packs are left; decided on their numbers alone."""
    ranked, earliest = merges_of(market)
    steps: list[tuple[Merge, int]] = []
    position = 0
    while position < len(ranked):
        merge = ranked[position]
        needed = total - limit
        if merge.extra >= -_TINY and needed <= 0:
            break
        small, large, both = merge.small, merge.large, merge.both
        times = counts[small] // 2 if small == large else min(counts[small], counts[large])
        if not times:
            position += 1
            continue
        if merge.extra >= -_TINY:  # half of what is needed at a time: what arises may merge at a better rate
            times = min(times, needed if earliest[both] >= position else max(1, needed // 2))
        counts[small] -= times
        counts[large] -= times
        counts[both] += times
        total -= times
        steps.append((merge, times))
        position = min(position, earliest[both])
    return steps if total <= limit else None
