"""Valuing: what each job gains from each option until the next decision.

The next decision comes with the next arrival, whose expected gap is known, or with the next end of another job. A
gap that turns out long is what makes jobs late, so the future is averaged over gaps: for a job that runs, over two
of them (the Gauss-Laguerre rule for an exponential gap); for one that waits, exactly, since there the tail hurts
most. A job that has run has less left to do; what the rest costs is read from its curve, as if no other job were
in the way. The difference to waiting is its gain. All jobs and options are computed at once, as matrices.

Three corrections make up for what the curve does not see. Weights are raised, because a deadline that is planned
to be missed by a little is often missed by much. Gaps are taken longer than expected, because they are known only
roughly. And progress is worth a little more than its cost on the curve: work that is done cannot get into the way
of others later, and where devices do not fill machines evenly (three of eight), nobody pays only for what is used.

Where changes cost time there is a fourth. Who needs many devices for a part of the time may hurry first or last; the
curve is indifferent, and last is calmer: nothing has to change now. Where all do that, and machines are hardly
enough, all must hurry at once later. So where it is crowded, who is too slow to be in time is charged for the change
to more devices that is still to come, and who hurries first only for the one to fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from .assigning import cheapest_hosts
from .curves import Curve, curve_of
from .models import CostObjective, JobState, MachineShare, MachineType, RuntimeProfile, Snapshot

Floats = NDArray[np.float64]
Columns = NDArray[np.int64]

_GAPS = ((0.585786437626905, 0.853553390593274), (3.414213562373095, 0.146446609406726))
_LONGER = 1.5
_SHORTEST = 1e-3
"""The gap is at least this part of the time to the next end: jobs that come together say nothing about the next."""
_CAUTION = 5.0
_PREMIUM = 0.02
_UNEVEN = 0.4
"""The share of the devices left idle by jobs of one kind alone that is expected to stay idle after all."""

_STARTED = 0.3
"""The part of the changes of running jobs for which a machine is started; the others go to one that runs."""
_CROWDED = 0.75
"""It is crowded where jobs need more than this part of all machines to be in time."""
_PUT_OFF = 2.0
"""Where it is crowded, a change that is still to come counts this many times: it may have to wait for a machine."""


class Market:
    """The options that a catalogue offers, as columns; kept between decisions."""

    def __init__(self, catalogue: tuple[MachineType, ...], objective: CostObjective) -> None:
        self.catalogue, self.objective = catalogue, objective
        self.hosts = cheapest_hosts(catalogue, objective)
        self.devices = sorted(self.hosts)
        self.sizes = {device: len(self.hosts[device]) - 1 for device in self.devices}
        self.columns = [(device, count) for device in self.devices for count in range(1, self.sizes[device] + 1)]
        self.index = {column: position for position, column in enumerate(self.columns)}
        self.first = {device: self.index[device, 1] for device in self.devices}
        self.rates = {device: [objective.rate(kind) for kind in self.hosts[device]] for device in self.devices}
        self.counts: Floats = np.array([float(count) for _, count in self.columns])
        self.alone: Floats = np.array([self.rates[device][count] for device, count in self.columns])
        self.shares: Floats = np.array([self._share(device, count) for device, count in self.columns])
        self.slots: Floats = np.array([count / self.sizes[device] for device, count in self.columns])
        self._rows: dict[RuntimeProfile, ProfileRow | None] = {}
        self._edges: dict[tuple[RuntimeProfile, float], tuple[tuple[float, ...], tuple[float, ...]]] = {}

    def row(self, profile: RuntimeProfile) -> ProfileRow | None:
        """What the market offers for a profile; None if nothing here can run it."""
        if profile not in self._rows:
            curve = curve_of(profile, self.catalogue, self.objective)
            self._rows[profile] = None if curve is None else self._row(curve)
        return self._rows[profile]

    def edges(self, profile: RuntimeProfile, weight: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Heights and slopes of the curve."""
        found = self._edges.get((profile, weight))
        if found is None:
            row = self.row(profile)
            assert row is not None
            edges = row.curve.edges(weight)
            found = tuple(e.height for e in edges), tuple(e.slope for e in edges)
            self._edges[profile, weight] = found
        return found

    def _share(self, device: str, count: int) -> float:
        kinds = [kind for kind in self.catalogue if kind.device == device and kind.devices >= count]
        return count * min(self.objective.rate(kind) / kind.devices for kind in kinds)

    def _row(self, curve: Curve) -> ProfileRow:
        seconds = np.full(len(self.columns), np.inf)
        useful = np.zeros(len(self.columns), dtype=bool)
        best: dict[str, float] = {}
        for option in sorted(curve.options, key=lambda option: option.devices):
            column = self.index[option.device, option.devices]
            seconds[column] = option.seconds
            useful[column] = option.seconds < best.get(option.device, np.inf)
            best[option.device] = min(option.seconds, best.get(option.device, np.inf))
        cheapest = curve.hull[-1]
        alike = min(
            self.objective.rate(kind) / (kind.devices // cheapest.devices)
            for kind in self.catalogue
            if kind.device == cheapest.device and kind.devices >= cheapest.devices
        )
        uneven = alike / cheapest.rate - 1 if cheapest.rate > 0 else 0.0
        premium = (_PREMIUM + _UNEVEN * uneven) * cheapest.cost
        return ProfileRow(curve, seconds, useful, curve.hull[0].seconds, cheapest.seconds, premium)


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A profile in a market."""

    curve: Curve
    seconds: Floats
    useful: NDArray[np.bool_]
    """Not useful are options that fewer devices of the same type equal."""
    fastest: float
    cheapest: float
    """Seconds with the option that costs least."""
    premium: float
    """What the whole job's progress is worth above its cost."""

    def corners(self, edges: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """For so many edges of the curve, what the faster and the slower option of each cost per second."""
        rates = [option.rate for option in reversed(self.curve.hull)][: max(1, edges - 1)]
        return (*rates, rates[-1])[:edges], (rates[0], *rates)[:edges]


@lru_cache(maxsize=64)
def market_of(catalogue: tuple[MachineType, ...], objective: CostObjective) -> Market:
    """The market of a catalogue."""
    return Market(catalogue, objective)


@dataclass(frozen=True, slots=True)
class Values:
    """For jobs (rows) and options (columns): what a change to them brings over waiting, and how long it is paid."""

    gain: Floats
    run: Floats
    useful: NDArray[np.bool_]
    wait: Floats
    """What the rest of each job costs if it waits."""
    slack: Floats
    """Seconds that each job could lose and still be in time at the fastest; negative if it is late."""
    column: Columns
    """The option that each job has; -1 if it waits."""
    stay: Floats
    """What each running job gains if it stays as it is, and how long that is paid."""
    stay_run: Floats


def crowd(snapshot: Snapshot, market: Market) -> int:
    """With fewer machines than this, it is crowded. Never where changes are free."""
    if snapshot.overheads.free:
        return 0
    needed = sum(_needed(market, state, state.job.deadline - snapshot.now) for state in snapshot.jobs)
    return ceil(needed / _CROWDED)


def _needed(market: Market, state: JobState, left: float) -> float:
    """The part of a machine that a job needs from now to its deadline: what its hull says, or the fastest."""
    row = market.row(state.job.profile)
    assert row is not None
    ends = [
        (option.seconds * state.remaining, market.slots[market.index[option.device, option.devices]])
        for option in row.curve.hull
    ]
    if left <= ends[0][0]:
        return float(ends[0][1])
    for (fast, more), (slow, fewer) in pairwise(ends):
        if left <= slow:
            hurry = (slow - left) / (slow - fast)
            return float(hurry * fast * more + (1 - hurry) * slow * fewer) / left
    slow, fewer = ends[-1]
    return float(slow * fewer) / left


def value(snapshot: Snapshot, market: Market, crowded: bool = False) -> Values:
    """The values of all jobs of a snapshot, each of which the market can run."""
    rows = [row for state in snapshot.jobs if (row := market.row(state.job.profile))]
    assert len(rows) == len(snapshot.jobs), "jobs that nothing can run are sorted out before"
    sums = _Sums(snapshot, market, rows, crowded)
    seconds = np.stack([row.seconds for row in rows])
    column = np.array([_column(snapshot, market, state.placement) for state in snapshot.jobs])
    useful = np.stack([row.useful for row in rows])
    gain, run, wait = sums.gains(seconds, market.shares[None, :], sums.change)
    at = np.maximum(column, 0)[:, None]
    if snapshot.overheads.free:
        stay, stay_run = np.take_along_axis(gain, at, 1), np.take_along_axis(run, at, 1)
    else:
        since = np.array([max(0.0, state.ready - snapshot.now) for state in snapshot.jobs])[:, None]
        stay, stay_run, _ = sums.gains(np.take_along_axis(seconds, at, 1), market.shares[at], since)
    return Values(gain, run, useful, wait, sums.slack, column, stay[:, 0], stay_run[:, 0])


class _Sums:
    """What is the same for all options of a job."""

    def __init__(self, snapshot: Snapshot, market: Market, rows: list[ProfileRow], crowded: bool) -> None:
        states = snapshot.jobs
        self._remaining = np.array([state.remaining for state in states])[:, None]
        self._left = np.array([state.job.deadline - snapshot.now for state in states])[:, None]
        edges = [market.edges(state.job.profile, state.job.weight * _CAUTION) for state in states]
        width = max(len(heights) for heights, _ in edges)
        self._heights = np.array([h + (h[-1],) * (width - len(h)) for h, _ in edges])
        self._slopes = np.array([s + (s[-1],) * (width - len(s)) for _, s in edges])
        overheads = snapshot.overheads
        self._later = _PUT_OFF * (overheads.start + overheads.restore + overheads.stop) if crowded else 0.0
        if self._later:
            pairs = [row.corners(len(heights)) for row, (heights, _) in zip(rows, edges, strict=True)]
            self._faster = np.array([fast + (fast[-1],) * (width - len(fast)) for fast, _ in pairs])
            self._slower = np.array([slow + (slow[-1],) * (width - len(slow)) for _, slow in pairs])
        self._premium = np.array([row.premium for row in rows])[:, None]
        fastest = np.array([row.fastest for row in rows]) * self._remaining[:, 0]
        self.slack: Floats = self._left[:, 0] - fastest
        cheapest = np.array([row.cheapest for row in rows]) * self._remaining[:, 0]
        ends = np.clip(self._left[:, 0], fastest, cheapest)
        running = np.array([state.placement is not None for state in states])
        self._soonest = _soonest_other(np.where(running, ends, np.inf))[:, None]
        self.change = _changes(snapshot)
        """Seconds before each job progresses after a change."""
        self._rate = np.array([row.curve.hull[-1].rate for row in rows])[:, None]
        soon = float(ends.min())
        self._gap = _LONGER * (soon if snapshot.gap is None else max(snapshot.gap, _SHORTEST * soon))

    def gains(self, seconds: Floats, rates: Floats, delays: Floats) -> tuple[Floats, Floats, Floats]:
        """Gain and paid time for options with so many seconds in all, at such rates; and what waiting costs."""
        ends = self._remaining * seconds + delays
        gain, run = np.zeros_like(ends), np.zeros_like(ends)
        wait = self._waiting()
        for factor, weight in _GAPS:
            elapsed = np.minimum(factor * self._gap, self._soonest)
            ran = np.minimum(ends, elapsed)
            done = np.minimum(np.maximum(ran - delays, 0.0) / seconds, self._remaining)
            ahead = np.maximum(delays - ran, 0.0)
            rest = self._rest(self._remaining - done, self._left - ran - ahead, seconds, rates)
            rest += self._rate * ahead
            gain += weight * (self._premium * done - rest)
            run += weight * ran
        gain += wait[:, None]
        gain[~np.isfinite(seconds)] = -np.inf
        return gain, run, wait

    def _waiting(self) -> Floats:
        """What the rest costs if a job waits for an arrival."""
        gap = self._gap / _LONGER
        steeper = np.diff(self._slopes, axis=1)
        at = np.diff(self._heights, axis=1) / np.where(steeper > 0, steeper, 1.0)
        left = self._left - self.change  # who waits now will have to start later
        until = np.maximum(left - self._remaining * at, 0.0)
        now = (self._least(self._remaining, left) + self._rate * self.change)[:, 0]
        later: Floats = gap * (steeper * np.exp(-until / gap)).sum(axis=1)
        return now + later

    def _rest(self, remaining: Floats, left: Floats, seconds: Floats, rates: Floats) -> Floats:
        """The least cost to the end for who has an option now: with it, or after a change that is still to come."""
        if not self._later:
            return self._least(remaining, left)
        whole = remaining * np.where(np.isfinite(seconds), seconds, 0.0)
        stay = whole * rates + self._slopes[:, -1:] * np.maximum(whole - left, 0.0)
        late = whole > left
        changed = np.full_like(whole, -np.inf)
        for edge in range(self._heights.shape[1]):
            line = self._heights[:, edge, None] * remaining - self._slopes[:, edge, None] * (left - self._later)
            line += self._later * np.where(late, self._faster[:, edge, None], self._slower[:, edge, None])
            np.maximum(changed, line, out=changed)
        least: Floats = np.minimum(stay, changed)
        return least

    def _least(self, remaining: Floats, left: Floats) -> Floats:
        """The least cost to the end."""
        best = self._heights[:, :1] * remaining - self._slopes[:, :1] * left
        for edge in range(1, self._heights.shape[1]):
            line = self._heights[:, edge, None] * remaining - self._slopes[:, edge, None] * left
            np.maximum(best, line, out=best)
        return best


def _soonest_other(ends: Floats) -> Floats:
    """For each job, when the first of the others is expected to end."""
    if len(ends) < 2:
        return np.full(len(ends), np.inf)
    first, second = np.partition(ends, 1)[:2]
    soonest: Floats = np.where(ends <= first, second, first)
    return soonest


def _column(snapshot: Snapshot, market: Market, place: MachineShare | None) -> int:
    return -1 if place is None else market.index[snapshot.configured[place.machine].device, place.devices]


def _changes(snapshot: Snapshot) -> Floats:
    overheads = snapshot.overheads
    if overheads.free:
        return np.zeros((1, 1))
    seconds = [
        (overheads.start if state.placement is None else _STARTED * overheads.start + overheads.stop)
        + overheads.restore * (state.remaining < 1.0)
        for state in snapshot.jobs
    ]
    return np.array(seconds)[:, None]
