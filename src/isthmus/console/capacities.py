"""How much of each site is free: its inventory without what jobs hold, ours and others'. Pure; sums only, no names.

Everything is counted in one way: how much is free, and how much there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isthmus._kit.quantities import parse_bytes, parse_cpus

from .index import JobRow

_CPU_CLASS = "cpu"


@dataclass(slots=True)
class Taken:
    """What jobs hold at one site."""

    jobs: int = 0
    cpus: float = 0.0
    memory: int = 0
    devices: Counter[str] = field(default_factory=Counter)


class Share(NamedTuple):
    """CPUs, bytes of memory or devices of one class."""

    free: float
    total: float


@dataclass(frozen=True, slots=True)
class SiteRoom:
    """One site: all there is, and what is taken."""

    site: Mapping[str, Any]
    taken: Taken

    @property
    def name(self) -> str:
        """Of the site."""
        return str(self.site["metadata"]["name"])

    @property
    def phase(self) -> str:
        """Of the site."""
        return str((self.site.get("status") or {}).get("phase") or "Unknown")

    @property
    def offers(self) -> bool:
        """Whether what is free there can be had: of a site that does not answer nobody knows."""
        return self.phase == "Ready"

    @property
    def cpus(self) -> Share:
        """Of all its nodes."""
        return _part(self._reported("capacity").get("cpus"), self.taken.cpus, self.others)

    @property
    def others(self) -> float:
        """CPUs that work holds which is not ours, as far as the site reports."""
        return float(self._reported("others").get("cpus") or 0)

    @property
    def memory(self) -> Share:
        """In bytes."""
        return _part(
            self._reported("capacity").get("memoryBytes"),
            self.taken.memory,
            self._reported("others").get("memoryBytes"),
        )

    @property
    def devices(self) -> dict[str, Share]:
        """Of each class. Those of the class cpu are the site's CPUs once more: what takes a CPU takes one of them."""
        there, others = self._reported("capacity").get("devices") or {}, self._reported("others").get("devices") or {}
        found = {
            name: _part(count, self.taken.devices[name], others.get(name)) for name, count in sorted(there.items())
        }
        if cores := found.get(_CPU_CLASS):
            found[_CPU_CLASS] = cores._replace(free=min(cores.free, int(self.cpus.free)))
        return found

    @property
    def boards(self) -> dict[str, Share]:
        """Devices without the class cpu, which is reported as CPUs."""
        return {name: part for name, part in self.devices.items() if name != _CPU_CLASS}

    def _reported(self, what: str) -> Mapping[str, Any]:
        return (self.site.get("status") or {}).get(what) or {}


def _part(total: float | None, ours: float, others: float | None) -> Share:
    return Share(max(0, (total or 0) - ours - (others or 0)), total or 0)


def by_urgency(rooms: Iterable[SiteRoom]) -> list[SiteRoom]:
    """Sites that need attention first, then those that work, then the idle ones."""
    return sorted(rooms, key=lambda room: (room.phase == "Ready", room.taken.jobs == 0, room.name))


def room_at(sites: Sequence[Mapping[str, Any]], active: Iterable[JobRow]) -> list[SiteRoom]:
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
    return [SiteRoom(site, taken.get(site["metadata"]["name"], Taken())) for site in sites]
