"""Sizing: which machines change their pool, and which are switched on or off. Pure, and linear in machines and jobs.

What a pool lacks is measured in work. Its machines will do some of the waiting work before another machine could
arrive; the jobs that would start later than that are *late*, and the pool lacks as many machines as do the late work
within the horizon, but no more than the late jobs can use. A job that is wider than the pool needs all that it lacks:
half of the machines help nobody, so they are given together or not at all.

What a pool can spare are its idle machines beyond those that its own waiting jobs can use: machines that gather for a
wide job are never taken. A pool without waiting work can also spare busy ones; they are drained and leave when their
work has ended.

Pools are served in the order of the start that is latest possible for a deadline, then of how long their late work
would take against how long it runs. Each takes what arrives soonest: idle machines of other pools, machines that are
off, machines that become free. A pool keeps what it used lately, and more of it when others want machines for long:
what is lent to short jobs is soon back, what is lent to long ones is not. A machine that arrived a moment ago stays,
so that two pools do not take it from each other in turn. What has been idle for long is switched off, beyond the
reserve and the pool's minimum.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from .machine_models import (
    HostAction,
    HostChange,
    PoolBounds,
    PooledHost,
    PoolPlan,
    PoolSnapshot,
    PoolTuning,
    WaitingWork,
)


def lately(used: float, busy: int, seconds: float, tuning: PoolTuning) -> float:
    """How many machines a pool used lately, `seconds` after the last answer: a mean that forgets slowly."""
    kept = math.exp(-seconds / tuning.memory)
    return kept * used + (1 - kept) * busy


def size_pools(seen: PoolSnapshot) -> PoolPlan:
    """What to change now."""
    return _Sizing(seen).plan()


@dataclass(slots=True)
class _Standing:
    """One pool as it stands, and what was decided for it."""

    bounds: PoolBounds
    hosts: list[PooledHost] = field(default_factory=list)
    waiting: list[WaitingWork] = field(default_factory=list)
    size: int = 0
    lacks: int = 0
    smallest: int = 1
    """Fewer machines than this do not help its widest job, which then counts for nothing."""
    without: int = 0
    """What it lacks without the jobs that are wider than the pool."""
    late: float = 0.0
    """Seconds that the late work would take on the machines of the pool."""
    slowdown: float = 0.0
    """The same against how long the late jobs run."""
    typical: float = 0.0
    """How long the late jobs run."""
    latest: float = math.inf
    given: int = 0
    taken: int = 0

    @property
    def follows(self) -> bool:
        return self.bounds.follows


@dataclass(slots=True)
class _Late:
    """Jobs that would start later than another machine could arrive."""

    hosts: int = 0
    work: float = 0.0

    def add(self, hosts: int, work: float) -> None:
        self.hosts += hosts
        self.work += work

    def plus(self, other: _Late) -> _Late:
        return _Late(self.hosts + other.hosts, self.work + other.work)

    def machines(self, horizon: float) -> int:
        """How many machines do the work within the horizon; no more than the jobs can use."""
        return min(self.hosts, math.ceil(self.work / horizon))


_Entry = tuple[float, int, PooledHost]
_Supply = defaultdict[tuple[str, str], list[_Entry]]


class _Sizing:
    def __init__(self, seen: PoolSnapshot) -> None:
        self._seen = seen
        self._pools = {bounds.name: _Standing(bounds) for bounds in seen.pools}
        for host in seen.hosts:
            if host.pool in self._pools:
                self._pools[host.pool].hosts.append(host)
        for work in seen.waiting:
            if work.pool in self._pools:
                self._pools[work.pool].waiting.append(work)
        self._changes: list[HostChange] = []
        self._used: set[str] = set()

    def plan(self) -> PoolPlan:
        for pool in self._pools.values():
            pool.size = sum(host.on or host.moving for host in pool.hosts)
            self._measure(pool)
        supply = self._supply()
        for pool in sorted(self._pools.values(), key=lambda pool: (pool.latest, -pool.slowdown, pool.bounds.name)):
            if pool.lacks:
                self._serve(pool, supply)
        for pool in self._pools.values():
            self._switch_off(pool)
        sizes = {name: pool.size for name, pool in self._pools.items()}
        return PoolPlan(tuple(self._changes), sizes, {name: self._reason(pool) for name, pool in self._pools.items()})

    def _measure(self, pool: _Standing) -> None:
        """How many machines the pool lacks."""
        if not pool.follows:
            return
        now, tuning = self._seen.now, self._seen.tuning
        soon = now + min(self._seen.times.usual, self._seen.times.start)
        left = [soon - (host.free_at or now) for host in pool.hosts if host.on and not host.moving]
        capacity, free_soon = sum(seconds for seconds in left if seconds > 0), sum(seconds > 0 for seconds in left)
        before = 0.0
        wide, narrow = _Late(), _Late()
        missing = 0
        for job in pool.waiting:
            work = job.hosts * job.seconds
            if (before >= capacity or job.hosts > free_soon) and job.hosts <= pool.bounds.maximum:
                if job.hosts > pool.size:
                    missing = missing or job.hosts - pool.size
                    wide.add(job.hosts, work)
                else:
                    narrow.add(job.hosts, work)
                if job.latest is not None:
                    pool.latest = min(pool.latest, job.latest)
            before += work
        coming, room = sum(host.moving for host in pool.hosts), pool.bounds.maximum - pool.size
        least = max(0, pool.bounds.minimum - pool.size)
        pool.without = max(least, min(narrow.machines(tuning.horizon) - coming, room))
        late = wide.plus(narrow)
        pool.lacks = max(pool.without, min(max(missing, late.machines(tuning.horizon)) - coming, room))
        pool.smallest = max(1, missing - coming)
        pool.late = late.work / max(1, pool.size)
        pool.typical = late.work / max(1, late.hosts)
        pool.slowdown = pool.late * late.hosts / max(1.0, late.work)

    def _supply(self) -> _Supply:
        """The machines that may change, by pool and shape; each with when it can leave."""
        found: _Supply = defaultdict(list)
        for pool in self._pools.values():
            for number, (leaves, host) in enumerate(self._spare(pool)):
                found[host.pool, host.shape].append((leaves, number, host))
        for hosts in found.values():
            heapq.heapify(hosts)
        return found

    def _spare(self, pool: _Standing) -> Iterator[tuple[float, PooledHost]]:
        """What the pool could give, and when: idle machines beyond its own work, machines that are off, busy ones."""
        now, tuning = self._seen.now, self._seen.tuning
        movable = [host for host in pool.hosts if not host.kept and not host.moving]
        yield from ((now + self._seen.times.start, host) for host in movable if not host.on)
        if not pool.follows:
            return
        settled = [host for host in movable if host.on and now - host.arrived >= tuning.settle]
        idle = sorted((host for host in settled if host.free_at is None), key=lambda host: host.since)
        own = sum(job.hosts for job in pool.waiting)
        yield from ((now, host) for host in idle[: max(0, len(idle) - own)])
        if not pool.waiting:
            busy = ((host.free_at, host) for host in settled if host.free_at is not None)
            yield from ((ends, host) for ends, host in busy if ends - now <= tuning.horizon / 2)

    def _serve(self, pool: _Standing, supply: _Supply) -> None:
        """Give the pool what it lacks, soonest first. Where a wide job cannot get all of its machines, it gets none."""
        name, fits, times = pool.bounds.name, self._seen.fits.get(pool.bounds.name), self._seen.times
        usable = {place: hosts for place, hosts in supply.items() if fits is None or place[1] in fits}
        chosen: list[tuple[tuple[str, str], _Entry]] = []
        aside: list[tuple[tuple[str, str], _Entry]] = []
        leaving: defaultdict[str, int] = defaultdict(int)
        others = sum(
            max(0, self._needs(other, pool.typical) - other.size)
            for other in self._pools.values()
            if other is not pool and other.follows
        )
        most = min(pool.lacks, max(self._needs(pool) - pool.size, sum(map(len, usable.values())) - others))
        while len(chosen) < most:
            places = [place for place, hosts in usable.items() if hosts]
            if not places:
                break
            place = min(places, key=lambda place: usable[place][0][0] + times.of(place[0], name))
            entry = heapq.heappop(usable[place])
            host, source = entry[2], self._pools[place[0]]
            if host.on and (source is pool or source.size - leaving[place[0]] <= self._needs(source, pool.typical)):
                aside.append((place, entry))
                continue
            chosen.append((place, entry))
            leaving[place[0]] += host.on
        served = len(chosen) if len(chosen) >= pool.smallest else min(len(chosen), pool.without)
        for _, entry in chosen[:served]:
            self._give(pool, entry[2])
        for place, entry in chosen[served:] + aside:
            heapq.heappush(supply[place], entry)

    def _needs(self, pool: _Standing, seconds: float = math.inf) -> int:
        """How many machines a pool keeps for itself when others want them for so long."""
        tuning = self._seen.tuning
        margin = tuning.keeps_from_short + (tuning.keeps_from_long - tuning.keeps_from_short) * min(
            1.0, seconds / tuning.memory
        )
        return max(pool.bounds.minimum, math.ceil(margin * self._seen.used.get(pool.bounds.name, 0.0)))

    def _give(self, pool: _Standing, host: PooledHost) -> None:
        source = self._pools[host.pool]
        waits = f"{pool.bounds.name} has work for {pool.lacks} more"
        if not host.on:
            action, why = HostAction.START, f"{waits}, and this machine is off"
        elif host.free_at is None:
            action, why = HostAction.MOVE, f"{waits}, and {source.bounds.name} has no work for this machine"
        else:
            action, why = (
                HostAction.MOVE,
                f"{waits}, and {source.bounds.name} has nothing waiting for this machine when its work ends",
            )
        if host.on:
            source.size -= 1
            source.taken += 1
        pool.size += 1
        pool.given += 1
        self._used.add(host.name)
        self._changes.append(HostChange(host.name, action, host.pool, pool.bounds.name, why))

    def _switch_off(self, pool: _Standing) -> None:
        """Machines that nobody has needed for long."""
        if not pool.follows or pool.lacks:
            return
        now, tuning = self._seen.now, self._seen.tuning
        idle = [
            host
            for host in pool.hosts
            if host.on and host.free_at is None and not host.kept and not host.moving and host.name not in self._used
        ]
        own = sum(job.hosts for job in pool.waiting)
        keep = max(own, math.ceil(tuning.reserve * len(pool.hosts)))
        resting = sorted((host for host in idle if now - host.since >= tuning.rest), key=lambda host: host.since)
        for host in resting[: max(0, min(len(idle) - keep, pool.size - self._needs(pool)))]:
            pool.size -= 1
            self._used.add(host.name)
            why = f"it has been idle for {now - host.since:.0f} s"
            self._changes.append(HostChange(host.name, HostAction.STOP, pool.bounds.name, pool.bounds.name, why))

    def _reason(self, pool: _Standing) -> str:
        if not pool.follows:
            return "its size does not follow demand"
        if pool.lacks and pool.given >= pool.lacks:
            return f"gets {_machines(pool.given)} for work that would wait about {pool.late:.0f} s more"
        if pool.lacks:
            return f"lacks {_machines(pool.lacks)}, and {pool.given or 'none'} can be had"
        if pool.taken:
            return f"gives {_machines(pool.taken)} that it has no work for"
        if pool.waiting:
            return "its waiting work starts on its own machines before others could arrive"
        return "nothing waits"


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"
