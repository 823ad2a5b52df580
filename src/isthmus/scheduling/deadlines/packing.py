"""Packing: jobs that know what they want onto few machines, with few devices idle.

Every job begins on a machine of its own. Two packs of the same device type are merged where one machine for both
is cheaper than two, the greatest saving first, and, as long as there are more packs than machines, where it costs
least. What a merge saves depends only on the two numbers of devices, so all merges are ranked once per market and
packs of equal size are interchangeable.

A `Chain` merges finished packs one by one, in an order that does not depend on how many machines there are: with
one machine more, one merge less is needed, and the plan is never dearer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from .models import MachineType
from .valuing import Columns, Market


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
    """Two packs become one, at this extra rate, with so many devices idle. Packs are distinguished by their column."""

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


def fits(market: Market, counts: Columns, limit: int) -> bool:
    """Whether so many jobs with each column fit on `limit` machines."""
    if float(market.slots @ counts) > limit + 1e-9:
        return False
    return _merge(market, counts.tolist(), int(counts.sum()), limit) is not None


def pack(market: Market, jobs: Sequence[int], wanted: Sequence[int], limit: int) -> list[Pack] | None:
    """Packs for jobs that want the given columns; None if they need more than `limit` machines."""
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


class Chain:
    """Packs, each paid for so many seconds, merged one by one as far as they can be."""

    def __init__(self, market: Market, packs: Sequence[Pack], runs: Sequence[float]) -> None:
        self._market, self._packs = market, packs
        self._merges: list[Merge] = []
        paid: list[list[float]] = [[] for _ in market.columns]
        for pack, run in zip(packs, runs, strict=True):
            paid[market.index[pack.device, pack.used]].append(run)
        extras, rates = [0.0], market.alone.tolist()
        for merge in _one_by_one(market, [len(heap) for heap in paid]):
            large, small = paid[merge.large].pop(), paid[merge.small].pop()
            both = max(large, small)
            paid[merge.both].append(both)
            extras.append(
                extras[-1] + rates[merge.both] * both - rates[merge.large] * large - rates[merge.small] * small
            )
            self._merges.append(merge)
        self._stops = _lowest_from(extras)
        self._surcharges = extras

    def __len__(self) -> int:
        return len(self._packs)

    @property
    def least(self) -> int:
        """The fewest machines that all packs fit on."""
        return len(self) - len(self._merges)

    def surcharge(self, limit: int) -> float:
        """What all packs cost more on so many machines than each on its own; negative if they cost less."""
        return self._surcharges[self._stop(limit)]

    def packs(self, limit: int) -> list[Pack]:
        """The packs for so many machines, which must be no fewer than the least."""
        heaps: list[list[list[Pack]]] = [[] for _ in self._market.columns]
        for pack in self._packs:
            heaps[self._market.index[pack.device, pack.used]].append([pack])
        for merge in self._merges[: self._stop(limit)]:
            both = heaps[merge.large].pop() + heaps[merge.small].pop()
            heaps[merge.both].append(both)
        return [_joined(group) for heap in heaps for group in heap]

    def _stop(self, limit: int) -> int:
        return self._stops[max(0, len(self) - limit)]


def _lowest_from(numbers: Sequence[float]) -> list[int]:
    """For each position, where the lowest number from there on is; the first of equal ones."""
    found = [len(numbers) - 1]
    for position in range(len(numbers) - 2, -1, -1):
        found.append(position if numbers[position] <= numbers[found[-1]] + _TINY else found[-1])
    return found[::-1]


def _one_by_one(market: Market, counts: list[int]) -> Iterator[Merge]:
    """Always the best merge that is possible, until none is."""
    ranked, earliest = merges_of(market)
    position = 0
    while position < len(ranked):
        merge = ranked[position]
        if counts[merge.small] > (merge.small == merge.large) and counts[merge.large]:
            counts[merge.small] -= 1
            counts[merge.large] -= 1
            counts[merge.both] += 1
            yield merge
            position = min(position, earliest[merge.both])
        else:
            position += 1


def _joined(group: list[Pack]) -> Pack:
    if len(group) == 1:
        return group[0]
    return Pack(group[0].device, sum(p.used for p in group), [job for p in group for job in p.jobs])
