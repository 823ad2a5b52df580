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
    """Two packs of so many devices become one, at this extra rate, with so many devices idle."""

    extra: float
    idle: int
    device: str
    small: int
    large: int


class Merges(NamedTuple):
    """All merges that a market allows, the best first; and for each size of a pack, the first it may take part in."""

    ranked: tuple[Merge, ...]
    earliest: dict[tuple[str, int], int]


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
                found.append(Merge(extra, hosts[both].devices - both, device, small, large))
    ranked = tuple(sorted(found))
    earliest: dict[tuple[str, int], int] = {}
    for position, merge in enumerate(ranked):
        earliest.setdefault((merge.device, merge.small), position)
        earliest.setdefault((merge.device, merge.large), position)
    return Merges(ranked, earliest)


def pack(market: Market, jobs: Sequence[int], wanted: Sequence[int], limit: int) -> list[Pack] | None:
    """Packs for jobs that want the given columns; None if they need more than `limit` machines."""
    if float(market.slots[list(wanted)].sum()) > limit + 1e-9:
        return None
    heaps: dict[tuple[str, int], list[list[int]]] = {}
    for job, column in zip(jobs, wanted, strict=True):
        heaps.setdefault(market.columns[column], []).append([job])
    count = len(jobs)
    ranked, earliest = merges_of(market)
    position = 0
    while position < len(ranked):
        extra, _, device, a, b = ranked[position]
        if extra >= -_TINY and count <= limit:
            break
        small, large = heaps.get((device, a)), heaps.get((device, b))
        if not small or not large or (small is large and len(small) < 2):
            position += 1
            continue
        joined = large.pop() + small.pop()
        heaps.setdefault((device, a + b), []).append(joined)
        count -= 1
        position = min(position, earliest.get((device, a + b), position))
    if count > limit:
        return None
    return [Pack(device, used, jobs) for (device, used), heap in heaps.items() for jobs in heap]
