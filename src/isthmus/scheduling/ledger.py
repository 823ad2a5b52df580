"""The ledger: who waits, in which order, and who takes how much room where.

It is kept up to date one job at a time, so that a placement pass starts from sums that are already made. It
holds nothing that could not be made again from the jobs themselves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .demands import Demand, Room

Order = tuple[int, str]
"""Sorts waiting jobs: minus the priority, then the uid (uids sort by birth)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that is ready and has no site."""

    uid: str
    demand: Demand
    priority: int = 0

    @property
    def order(self) -> Order:
        """Its place in the queue."""
        return (-self.priority, self.uid)


@dataclass(frozen=True, slots=True)
class Occupying:
    """A job that takes room at a site."""

    uid: str
    demand: Demand
    site: str


class Ledger:
    """All jobs that wait or take room."""

    def __init__(self) -> None:
        self._entries: dict[str, Waiting | Occupying] = {}
        self._queues: dict[Demand, list[Order]] = {}
        self._sites: dict[str, Room] = {}
        self._tenants: dict[str, Room] = {}
        self._unsized: dict[str, Counter[int]] = {}
        self._counts: dict[str, int] = {}
        self._site_counts: dict[str, int] = {}

    def put(self, entry: Waiting | Occupying) -> bool:
        """Note where a job stands; whether that is news."""
        if self._entries.get(entry.uid) == entry:
            return False
        self.drop(entry.uid)
        self._entries[entry.uid] = entry
        if isinstance(entry, Waiting):
            insort(self._queues.setdefault(entry.demand, []), entry.order)
        else:
            self._count(entry, 1)
        return True

    def drop(self, uid: str) -> bool:
        """The job neither waits nor takes room; whether that is news."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return False
        if isinstance(entry, Occupying):
            self._count(entry, -1)
            return True
        queue = self._queues[entry.demand]
        del queue[bisect_left(queue, entry.order)]
        if not queue:
            del self._queues[entry.demand]
        return True

    def _count(self, entry: Occupying, sign: int) -> None:
        room, tenant = entry.demand.room, entry.demand.tenant
        self._sites[entry.site] = self._sites.get(entry.site, Room()).plus(room, sign)
        self._tenants[tenant] = self._tenants.get(tenant, Room()).plus(room, sign)
        if not room.memory:
            self._unsized.setdefault(tenant, Counter())[room.milli_cpus] += sign
        self._counts[tenant] = self._counts.get(tenant, 0) + sign
        self._site_counts[entry.site] = self._site_counts.get(entry.site, 0) + sign
        if not self._counts[tenant]:
            del self._counts[tenant], self._tenants[tenant]
            self._unsized.pop(tenant, None)

    def waits(self, uid: str) -> bool:
        """Whether the job waits for a site."""
        return isinstance(self._entries.get(uid), Waiting)

    @property
    def queues(self) -> dict[Demand, list[Order]]:
        """For each demand, the jobs that wait, in order. Not to be changed."""
        return self._queues

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return sum(len(queue) for queue in self._queues.values())

    def taken(self, site: str) -> Room:
        """What is taken at a site."""
        return self._sites.get(site, Room())

    def jobs_at(self, site: str) -> int:
        """How many jobs take room at a site."""
        return self._site_counts.get(site, 0)

    def at(self, site: str) -> list[str]:
        """The jobs that take room at a site, by uid. Looks at all: for rare occasions."""
        return [e.uid for e in self._entries.values() if isinstance(e, Occupying) and e.site == site]

    def occupying(self) -> Iterator[Occupying]:
        """All jobs that take room."""
        return (entry for entry in self._entries.values() if isinstance(entry, Occupying))

    def occupied_by(self, uid: str) -> Occupying | None:
        """The room that a job takes."""
        entry = self._entries.get(uid)
        return entry if isinstance(entry, Occupying) else None

    def used(self, tenant: str) -> Room:
        """What a tenant takes, over all sites."""
        return self._tenants.get(tenant, Room())

    def unsized(self, tenant: str) -> Mapping[int, int]:
        """Of a tenant's jobs that take room and ask for no memory: how many have so many thousandths of a cpu."""
        return self._unsized.get(tenant, {})

    def active(self, tenant: str) -> int:
        """How many jobs of a tenant take room."""
        return self._counts.get(tenant, 0)
