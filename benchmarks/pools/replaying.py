"""Replaying: a trace on machines that change their pool. Events in the order of time; no randomness.

Each pool serves its queue as the real one does: `slurm` in order with EASY backfill by the jobs' time limits,
`kubernetes` whatever fits. A job takes whole machines. Every policy is asked at the same moments.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from isthmus.scheduling.pools.machine_models import (
    HostAction,
    HostChange,
    MoveTimes,
    PoolBounds,
    PooledHost,
    PoolSnapshot,
    PoolTuning,
    WaitingWork,
)
from isthmus.scheduling.pools.sizing import lately

from .policies import Policy
from .traces import KUBERNETES, SLURM, TracedJob

TUNING = PoolTuning()
LOOKED_AT = 200
"""How far into the queue backfill looks."""
WATTS = {"off": 8.0, "idle": 120.0, "busy": 300.0, "changing": 180.0}
BOUNDED = 10.0
"""Jobs shorter than this count as this long in the slowdown, as is usual."""


@dataclass(slots=True)
class Simulated:
    """A machine in the replay."""

    name: str
    pool: str
    state: str = "idle"
    since: float = 0.0
    free_at: float | None = None
    arrived: float = float("-inf")
    leaves_for: str | None = None
    watched: float = 0.0
    """Until when its energy was counted."""


@dataclass(slots=True)
class Outcome:
    """What a policy came to."""

    waits: dict[str, list[float]] = field(default_factory=lambda: {SLURM: [], KUBERNETES: []})
    slowdowns: list[float] = field(default_factory=list)
    moves: int = 0
    switched: int = 0
    joules: float = 0.0
    ended: float = 0.0

    @property
    def wait(self) -> float:
        return fmean([*self.waits[SLURM], *self.waits[KUBERNETES]])

    @property
    def worst(self) -> float:
        """The wait that 99 of 100 jobs stay below."""
        waits = sorted([*self.waits[SLURM], *self.waits[KUBERNETES]])
        return waits[int(0.99 * (len(waits) - 1))]

    @property
    def kilowatt_hours(self) -> float:
        return self.joules / 3.6e6


class Replay:
    """One trace under one policy."""

    def __init__(
        self, jobs: Sequence[TracedJob], hosts: int, policy: Policy, times: MoveTimes, period: float = 30.0
    ) -> None:
        self._policy, self._times, self._period = policy, times, period
        self._jobs = [job for job in jobs if job.hosts <= hosts]
        work = Counter[str]()
        for job in self._jobs:
            work[job.pool] += int(job.hosts * job.seconds)
        widest = max((job.hosts for job in self._jobs if job.pool == SLURM), default=1)
        share = min(hosts - 1, max(widest, round(hosts * work[SLURM] / max(1, sum(work.values())))))
        self._hosts = {f"h{i}": Simulated(f"h{i}", SLURM if i < share else KUBERNETES) for i in range(hosts)}
        self._queues: dict[str, list[TracedJob]] = {SLURM: [], KUBERNETES: []}
        self._running: dict[int, tuple[TracedJob, list[Simulated], float]] = {}
        self._events: list[tuple[float, int, str, object]] = []
        self._used: dict[str, float] = {SLURM: 0.0, KUBERNETES: 0.0}
        self._number = 0
        self.outcome = Outcome()

    def run(self) -> Outcome:
        for job in self._jobs:
            self._at(job.submitted, "arrival", job)
        left, now = len(self._jobs), 0.0
        self._at(self._jobs[0].submitted if self._jobs else 0.0, "tick", None)
        while left:
            now, _, kind, what = heapq.heappop(self._events)
            if kind == "arrival":
                assert isinstance(what, TracedJob)
                self._queues[what.pool].append(what)
            elif kind == "end":
                assert isinstance(what, int)
                self._end(now, what)
                left -= 1
            elif kind == "ready":
                assert isinstance(what, Simulated)
                self._becomes(now, what, "idle")
                what.arrived = now
            else:
                self._ask(now)
                self._at(now + self._period, "tick", None)
            for pool in self._queues:
                self._start(now, pool)
        for host in self._hosts.values():
            self._becomes(now, host, host.state)
        self.outcome.ended = now
        return self.outcome

    def _at(self, when: float, kind: str, what: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, kind, what))

    def _becomes(self, now: float, host: Simulated, state: str) -> None:
        self.outcome.joules += WATTS[host.state] * (now - host.watched)
        host.watched = now
        if state != host.state:
            host.state, host.since = state, now

    def _end(self, now: float, number: int) -> None:
        _, hosts, _ = self._running.pop(number)
        for host in hosts:
            host.free_at = None
            self._becomes(now, host, "idle")
            if host.leaves_for:
                self._depart(now, host, host.leaves_for, self._times.of(host.pool, host.leaves_for))

    def _depart(self, now: float, host: Simulated, pool: str, seconds: float) -> None:
        host.pool, host.leaves_for = pool, None
        self._becomes(now, host, "changing")
        self._at(now + seconds, "ready", host)

    def _idle(self, pool: str) -> list[Simulated]:
        return [host for host in self._hosts.values() if host.pool == pool and host.state == "idle"]

    def _start(self, now: float, pool: str) -> None:
        queue = self._queues[pool]
        if not queue:
            return
        idle = self._idle(pool)
        begun: set[int] = set()
        for place, job in enumerate(queue[:LOOKED_AT]):
            if job.hosts <= len(idle):
                self._run(now, job, [idle.pop() for _ in range(job.hosts)])
                begun.add(place)
            elif pool == SLURM:
                begun |= self._backfill(now, job, place + 1, idle)
                break
        if begun:
            self._queues[pool] = [job for place, job in enumerate(queue) if place not in begun]

    def _backfill(self, now: float, head: TracedJob, first: int, idle: list[Simulated]) -> set[int]:
        """Jobs behind the head that do not delay it."""
        ends = sorted((until, len(hosts)) for job, hosts, until in self._running.values() if job.pool == SLURM)
        free, shadow = len(idle), float("inf")
        for until, hosts in ends:
            free += hosts
            if free >= head.hosts:
                shadow = until
                break
        extra = free - head.hosts if shadow < float("inf") else len(idle)
        begun = set()
        for place, job in enumerate(self._queues[SLURM][first:LOOKED_AT], first):
            if job.hosts <= len(idle) and (now + job.asked <= shadow or job.hosts <= extra):
                if now + job.asked > shadow:
                    extra -= job.hosts
                self._run(now, job, [idle.pop() for _ in range(job.hosts)])
                begun.add(place)
        return begun

    def _run(self, now: float, job: TracedJob, hosts: list[Simulated]) -> None:
        for host in hosts:
            self._becomes(now, host, "busy")
            host.free_at = now + job.asked
        self._number += 1
        self._running[self._number] = (job, hosts, now + job.asked)
        self._at(now + job.seconds, "end", self._number)
        waited = now - job.submitted
        self.outcome.waits[job.pool].append(waited)
        self.outcome.slowdowns.append((waited + job.seconds) / max(BOUNDED, job.seconds))

    def _ask(self, now: float) -> None:
        hosts = tuple(
            PooledHost(
                host.name,
                host.pool,
                on=host.state != "off",
                free_at=host.free_at,
                since=host.since,
                arrived=host.arrived,
                kept=host.leaves_for is not None,
                moving=host.state == "changing",
            )
            for host in self._hosts.values()
        )
        waiting = tuple(
            WaitingWork(pool, job.hosts, job.asked) for pool, queue in self._queues.items() for job in queue
        )
        busy = Counter(host.pool for host in self._hosts.values() if host.state == "busy")
        self._used = {pool: lately(used, busy[pool], self._period, TUNING) for pool, used in self._used.items()}
        pools = (PoolBounds(SLURM), PoolBounds(KUBERNETES))
        for change in self._policy(PoolSnapshot(now, pools, hosts, waiting, self._times, TUNING, self._used)):
            self._apply(now, change)

    def _apply(self, now: float, change: HostChange) -> None:
        host = self._hosts[change.host]
        if change.action is HostAction.STOP:
            self.outcome.switched += 1
            self._becomes(now, host, "off")
            return
        if change.action is HostAction.START:
            self._depart(now, host, change.target, self._times.start)
            return
        self.outcome.moves += 1
        if host.state == "busy":
            host.leaves_for = change.target
        else:
            self._depart(now, host, change.target, self._times.of(change.source, change.target))
