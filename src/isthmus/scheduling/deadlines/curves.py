"""Curves: what a job costs as a function of the time it is given.

An option is a number of devices of one type. Drawn as points (run time, cost), the options of a job have a lower
convex hull: by changing between two options on its way a job reaches every point of the hull, and nothing below
it. Late jobs pay their weight per second, which is one more edge of that slope. The hull is convex, so it is the
largest of its edges' lines, and scales: with `remaining` r and D seconds to the deadline the cheapest way to the
end costs `max(height * r - slope * D)` over the edges, whatever share was done before.

The price of an option is its share of the cheapest machine per device that can host it: nobody can do better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .models import CostObjective, MachineType, RuntimeProfile


@dataclass(frozen=True, slots=True)
class Option:
    """So many devices of one type: how long the whole job takes, and what they cost per second."""

    device: str
    devices: int
    seconds: float
    rate: float
    """Its share of the machine that is cheapest per device."""
    alone: float
    """The whole of the cheapest machine that can host it."""

    @property
    def cost(self) -> float:
        """Of the whole job, with no device left idle beside it."""
        return self.rate * self.seconds


@dataclass(frozen=True, slots=True)
class Edge:
    """A line of the hull: cost = height - slope * time."""

    height: float
    slope: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The options of a profile, and their hull from the fastest to the cheapest."""

    options: tuple[Option, ...]
    """The cheapest first, if each has a machine to itself."""
    quickest: tuple[Option, ...]
    """The same, the fastest first."""
    hull: tuple[Option, ...]

    def edges(self, weight: float) -> tuple[Edge, ...]:
        """The lines whose maximum is the least cost of a job that pays `weight` per second late."""
        found = [Edge(self.hull[-1].cost, 0.0)]
        corner = self.hull[-1]
        for faster in reversed(self.hull[:-1]):
            slope = (faster.cost - corner.cost) / (corner.seconds - faster.seconds)
            if slope >= weight:
                break
            found.append(Edge(corner.cost + slope * corner.seconds, slope))
            corner = faster
        if weight > 0:
            found.append(Edge(corner.cost + weight * corner.seconds, weight))
        return tuple(found)


@lru_cache(maxsize=4096)
def curve_of(profile: RuntimeProfile, catalogue: tuple[MachineType, ...], objective: CostObjective) -> Curve | None:
    """The curve of a profile on a catalogue; None if no machine can host any of its options."""
    options = []
    for device, devices, seconds in profile.key:
        hosts = [kind for kind in catalogue if kind.device == device and kind.devices >= devices]
        if hosts:
            share = min(objective.rate(kind) / kind.devices for kind in hosts)
            alone = min(objective.rate(kind) for kind in hosts)
            options.append(Option(device, devices, seconds, share * devices, alone))
    if not options:
        return None
    options.sort(key=lambda option: option.alone * option.seconds)
    quickest = sorted(options, key=lambda option: option.seconds)
    return Curve(tuple(options), tuple(quickest), tuple(_lower_hull(options)))


def _lower_hull(options: Sequence[Option]) -> list[Option]:
    """From the fastest to the cheapest, each edge flatter than the one before."""
    hull: list[Option] = []
    for option in sorted(options, key=lambda o: (o.seconds, o.cost)):
        if hull and option.cost >= min(h.cost for h in hull):
            continue
        while len(hull) >= 2 and _above(hull[-2], hull[-1], option):
            hull.pop()
        hull.append(option)
    return hull


def _above(left: Option, middle: Option, right: Option) -> bool:
    """Whether the middle lies on or above the line from left to right."""
    run, whole = middle.seconds - left.seconds, right.seconds - left.seconds
    return (left.cost - middle.cost) * whole <= (left.cost - right.cost) * run
