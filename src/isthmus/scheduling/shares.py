"""Whose turn it is: tenants by what they take already, and each tenant's jobs by priority, then age. Pure.

A tenant's share is the largest part that it takes of anything (cpus, memory, a class of devices) of all that there is:
dominant resource fairness, with equal weights. The tenant with the smallest share goes next, so that however many jobs
somebody sends, and whatever priority they give them, the others come before them as soon as room becomes free. Among
tenants with equal shares it is the turn of the one whose next job is the oldest, whatever its priority.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from .demands import Demand, Room
from .ledger import Ledger, Order

Head = tuple[Order, int, Demand]
"""The first of the jobs that wait for the same; the number keeps demands from being compared."""


class Turns:
    """The heads of all queues, in the order in which they are served. What is assigned counts at once."""

    def __init__(self, ledger: Ledger, total: Room) -> None:
        self._ledger, self._total = ledger, total
        self._heads: dict[str, list[Head]] = {}
        self._taken: dict[str, Room] = {}
        for number, (demand, queue) in enumerate(ledger.queues.items()):
            self._heads.setdefault(demand.tenant, []).append((queue[0], number, demand))
        for heads in self._heads.values():
            heapq.heapify(heads)
        self._tenants = [self._turn(tenant) for tenant in self._heads]
        heapq.heapify(self._tenants)

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def next(self) -> Head:
        """Whose turn it is."""
        return self._heads[self._tenants[0][2]][0]

    def drop(self) -> None:
        """Nothing more is done for that demand."""
        tenant = self._tenants[0][2]
        heapq.heappop(self._heads[tenant])
        self._again(tenant)

    def assigned(self, following: Order | None) -> None:
        """It was given a site; the job that follows it in its queue, if there is one."""
        tenant = self._tenants[0][2]
        _, number, demand = self._heads[tenant][0]
        self._taken[tenant] = self._taken.get(tenant, Room()).plus(demand.room)
        if following is None:
            heapq.heappop(self._heads[tenant])
        else:
            heapq.heapreplace(self._heads[tenant], (following, number, demand))
        self._again(tenant)

    def _again(self, tenant: str) -> None:
        if self._heads[tenant]:
            heapq.heapreplace(self._tenants, self._turn(tenant))
        else:
            heapq.heappop(self._tenants)

    def _turn(self, tenant: str) -> tuple[float, str, str]:
        used = self._ledger.used(tenant)
        if tenant in self._taken:
            used = used.plus(self._taken[tenant])
        return share_of(used, self._total), self._heads[tenant][0][0][1], tenant


def share_of(used: Room, total: Room) -> float:
    """The largest part that is used of anything."""
    parts = [used.milli_cpus / total.milli_cpus if total.milli_cpus > 0 else 0.0]
    if total.memory > 0:
        parts.append(used.memory / total.memory)
    there = dict(total.devices)
    parts += [count / there[name] for name, count in used.devices if there.get(name, 0) > 0]
    return max(parts)


def sum_of(rooms: Iterable[Room]) -> Room:
    """All of it."""
    total = Room()
    for room in rooms:
        total = total.plus(room)
    return total
