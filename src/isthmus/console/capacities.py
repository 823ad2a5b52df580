"""How much of each site is taken: its inventory against the jobs that hold room there. Pure; sums only, no names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus._kit.quantities import parse_bytes, parse_cpus

from .index import Row


@dataclass(slots=True)
class Taken:
    """What jobs hold at one site."""

    jobs: int = 0
    cpus: float = 0.0
    memory: int = 0
    devices: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Room:
    """One site: all there is, and what is taken."""

    site: Mapping[str, Any]
    taken: Taken

    @property
    def name(self) -> str:
        """Of the site."""
        return str(self.site["metadata"]["name"])

    @property
    def cpus(self) -> float:
        """All of them."""
        return float((self.site.get("status") or {}).get("capacity", {}).get("cpus") or 0)

    @property
    def memory(self) -> int:
        """Bytes."""
        return int((self.site.get("status") or {}).get("capacity", {}).get("memoryBytes") or 0)

    @property
    def devices(self) -> list[tuple[str, int, int]]:
        """Class, how many are free, how many there are."""
        there = (self.site.get("status") or {}).get("capacity", {}).get("devices") or {}
        return [(name, max(0, count - self.taken.devices[name]), count) for name, count in sorted(there.items())]


def room_at(sites: Sequence[Mapping[str, Any]], active: Iterable[Row]) -> list[Room]:
    """Every site with what is taken there."""
    taken: dict[str, Taken] = {}
    for row in active:
        at = taken.setdefault(row.site, Taken())
        tasks = int(row.wants["tasks"])
        at.jobs += 1
        at.cpus += parse_cpus(row.wants["cpus"]) * tasks / 1000
        at.memory += parse_bytes(row.wants["memory"]) * tasks if row.wants["memory"] else 0
        for name, count in row.wants["devices"].items():
            at.devices[name] += count * tasks
    return [Room(site, taken.get(site["metadata"]["name"], Taken())) for site in sites]
