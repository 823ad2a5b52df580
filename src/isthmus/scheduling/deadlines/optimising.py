"""Optimising: our own method.

What each job gains from each option is known (`valuing`). A price per machine is searched at which the jobs, each
choosing what is best for itself, fit on the machines there are (`pricing`); with machines to spare it is zero. The
choices are packed (`packing`) and refined (`refining`). Where changes cost time, further plans leave alone whoever
runs well. The plan that is expected to cost least is taken. That everything stays as it is and the greedy plan are
always among the candidates, so that the plan is never worse than these by its own measure.

One more machine never makes a plan worse, because plans for fewer machines are candidates too: all of them, down to
the number at which no plan can be better than the one found. Few are ever made. Where changes are free, what fits at
no price is merged in an order that does not depend on the number of machines, so that fewer machines cannot be
better. Where they cost time, a plan that fits at no price is the same for any greater number. And greedy's plans
fall short from their first jobs on, which are the same for any number. What a plan costs may depend on whether it is
crowded (`valuing`); then it falls with more machines, and plans made for the crowd remain candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from .drafting import Draft, by_pressure, conclude, drafted
from .lines import Line
from .models import MachinePlan, Snapshot, sound, unplaceable
from .pricing import Ceiling
from .valuing import Floats, Market, Values, crowd, market_of, value

_PRICES = (0.25, 1.0, 4.0)
_TINY = 1e-9
_ROUNDING = 1e-11


def optimise(snapshot: Snapshot) -> MachinePlan:
    """The plan that is expected to cost least."""
    market = market_of(snapshot.catalogue, snapshot.objective)
    rejected = {
        state.job.name: unplaceable(state.job, snapshot.catalogue)
        for state in snapshot.jobs
        if market.row(state.job.profile) is None
    }
    snapshot = _placeable(sound(snapshot), market)
    if not snapshot.jobs or not snapshot.machines:
        return MachinePlan(rejected=rejected)
    return replace(_Search(snapshot, market).best(), rejected=rejected)


def expected_cost(snapshot: Snapshot, plan: MachinePlan) -> float:
    """What a plan and all that follows it is expected to cost: the measure that `optimise` decides by."""
    market = market_of(snapshot.catalogue, snapshot.objective)
    snapshot = _placeable(sound(snapshot), market)
    if not snapshot.jobs:
        return 0.0
    values = value(snapshot, market, len(snapshot.machines) < crowd(snapshot, market))
    return float(values.wait.sum()) - _worth(snapshot, market, values, plan)[1]


def _placeable(snapshot: Snapshot, market: Market) -> Snapshot:
    jobs = tuple(state for state in snapshot.jobs if market.row(state.job.profile) is not None)
    return snapshot if len(jobs) == len(snapshot.jobs) else replace(snapshot, jobs=jobs)


def _worth(snapshot: Snapshot, market: Market, values: Values, plan: MachinePlan) -> tuple[bool, float]:
    """Whether anything runs, which comes first; and what all jobs gain, less what the machines cost."""
    total = 0.0
    longest: dict[str, float] = {}
    for row, state in enumerate(snapshot.jobs):
        place = plan.placements.get(state.job.name)
        if place is None:
            continue
        kind = plan.machines[place.machine]
        if place == state.placement and snapshot.configured.get(place.machine) == kind:
            gain, run = values.stay[row], values.stay_run[row]
        else:
            column = market.index[kind.device, place.devices]
            gain, run = values.gain[row, column], values.run[row, column]
        total += float(gain)
        longest[place.machine] = max(longest.get(place.machine, 0.0), float(run))
    total -= sum(run * market.objective.rate(plan.machines[machine]) for machine, run in longest.items())
    return bool(longest), total


def _as_it_is(snapshot: Snapshot) -> MachinePlan:
    """The plan that changes nothing: it is always possible."""
    placements = {state.job.name: state.placement for state in snapshot.jobs if state.placement}
    machines = {place.machine: snapshot.configured[place.machine] for place in placements.values()}
    return MachinePlan(machines, placements)


class _Search:
    """For the best plan, from all machines down to as few as could be better."""

    def __init__(self, snapshot: Snapshot, market: Market) -> None:
        self._snapshot, self._market = snapshot, market
        self._crowd = crowd(snapshot, market)
        self._crowded = len(snapshot.machines) < self._crowd
        self._values = value(snapshot, market, self._crowded)
        self._ceiling = Ceiling(market, self._values)
        self._best: Callable[[], MachinePlan] = partial(_as_it_is, snapshot)
        self._worth = (False, -inf)
        self._slight = _ROUNDING * (self._ceiling.free + float(np.abs(self._values.wait).sum()))
        states = snapshot.jobs
        self._bound = {row for row, state in enumerate(states) if state.placement and not state.job.restartable}

    def best(self) -> MachinePlan:
        """The best of all that is considered: first that everything stays as it is, which is always possible."""
        self._take(_as_it_is(self._snapshot))
        if self._snapshot.overheads.free:
            self._draw(Line(self._snapshot, self._market, self._values, frozenset(self._bound)))
        else:
            self._propose()
        if not self._bound:
            self._try_greedy()
        return self._best()

    def _draw(self, line: Line) -> None:
        """The best plan of a line: free choice where it fits, else for as few machines as could be better."""
        top = len(self._snapshot.machines)
        if top >= line.least:
            self._consider((True, (free := line.free(top)).worth()), lambda: line.shown(free))
        for limit in range(min(top, line.least - 1), 0, -1):
            if self._worth[0] and min(self._ceiling.at(limit), line.enough) <= self._worth[1] + self._slight:
                break
            if (found := line.priced(limit)) is None:
                break
            board = found[0]
            self._consider((True, board.worth()), partial(line.shown, board), line.enough)

    def _propose(self) -> None:
        """Plans that count changes, for the crowd that there is with all machines, and with fewer."""
        snapshot, market = self._snapshot, self._market
        self._descend(_Proposer(snapshot, market, self._values, self._bound), len(snapshot.machines))
        if not self._crowded and self._crowd > 1:
            self._descend(_Proposer(snapshot, market, value(snapshot, market, True), self._bound), self._crowd - 1)

    def _descend(self, proposer: _Proposer, top: int) -> None:
        """Consider what is proposed for so many machines or fewer, as long as it could be better."""
        limit = top
        while limit > 0 and not (self._worth[0] and self._ceiling.at(limit) <= self._worth[1] + self._slight):
            for plan in proposer.plans(limit):
                self._take(plan)
            limit = min(limit, proposer.most) - 1

    def _take(self, plan: MachinePlan) -> None:
        self._consider(_worth(self._snapshot, self._market, self._values, plan), lambda: plan)

    def _consider(self, worth: tuple[bool, float], plan: Callable[[], MachinePlan], most: float = inf) -> None:
        if self._worth < worth and worth[1] <= most + self._slight:
            self._best, self._worth = plan, worth

    def _try_greedy(self) -> None:
        """Greedy's plans. Their first jobs sit alike for any number of machines, and what they miss is known."""
        missed: list[float] = []
        for limit in range(len(self._snapshot.machines), 0, -1):
            if missed:
                if self._ceiling.at(limit) <= self._worth[1] + self._slight:
                    break
                if limit >= len(missed) or self._ceiling.free - missed[limit] <= self._worth[1] + self._slight:
                    continue
            fewer = replace(self._snapshot, machines=self._snapshot.machines[:limit])
            jobs, draft = drafted(by_pressure, fewer)
            self._take(conclude(fewer, jobs, draft))
            missed = missed or self._missed(draft)

    def _missed(self, draft: Draft) -> list[float]:
        """At index n, what the jobs miss that are seated before machine n is opened."""
        found: list[float] = []
        missed = 0.0
        for job, seat in draft.seats.items():
            if seat.node >= len(found):
                found.append(missed)
            choice = seat.choice
            missed += self._ceiling.short(job, self._market.index[choice.device, choice.devices])
        return found


class _Proposer:
    """Proposes a fresh plan, and plans that leave alone who runs well: all of them, or who can pay for it."""

    def __init__(self, snapshot: Snapshot, market: Market, values: Values, bound: set[int]) -> None:
        self._snapshot, self._market, self._values, self._bound = snapshot, market, values, bound
        self._lines: dict[frozenset[int], Line] = {}
        self._seen: set[frozenset[int]] = set()
        self.most = 0
        """With so many machines or more, the plans that were made last are the same."""

    def plans(self, limit: int) -> Iterator[MachinePlan]:
        """For so many machines, or fewer; without those that were made before."""
        self.most = 0
        content = self._content(0.0)
        yield from self._keeping(set(), limit)
        yield from self._keeping(self._full(content), limit)
        yield from self._keeping(content, limit)
        if self._line(content).price(limit):
            dearest = max(max(rates) for rates in self._market.rates.values())
            price = self._line(set()).price(limit) or dearest
            for factor in _PRICES:
                yield from self._keeping(self._content(factor * price), limit)

    def _keeping(self, kept: set[int], limit: int) -> Iterator[MachinePlan]:
        line = self._line(kept)
        self.most = max(self.most, line.most)
        loose = limit >= line.most
        if line.kept in self._seen and loose:
            return
        if (found := line.priced(limit)) is not None:
            yield line.shown(found[0])
        if loose:
            self._seen.add(line.kept)

    def _line(self, kept: set[int]) -> Line:
        key = frozenset(kept | self._bound)
        if key not in self._lines:
            self._lines[key] = Line(self._snapshot, self._market, self._values, key)
        return self._lines[key]

    def _full(self, content: set[int]) -> set[int]:
        """Those on machines that have no idle device if only they stay."""
        used: dict[str, int] = {}
        places = {row: place for row in content if (place := self._snapshot.jobs[row].placement)}
        for place in places.values():
            used[place.machine] = used.get(place.machine, 0) + place.devices
        configured = self._snapshot.configured
        return {row for row, place in places.items() if used[place.machine] == configured[place.machine].devices}

    def _content(self, price: float) -> set[int]:
        """Running jobs that gain no more from any change, at a price for machines."""
        market, values = self._market, self._values
        rates = market.shares + price * market.slots
        change = np.where(values.useful, values.gain - rates * values.run, -np.inf).max(axis=1)
        if price > 0:
            change = np.maximum(change, 0.0)
        paid = market.shares[values.column] + price * _occupied(self._snapshot)
        stay = values.stay - paid * values.stay_run
        return {int(row) for row in np.nonzero((values.column >= 0) & (stay >= change - _TINY))[0]}


def _occupied(snapshot: Snapshot) -> Floats:
    """What part of a machine each job has; idle devices count as its jobs'."""
    used: dict[str, int] = {}
    for state in snapshot.jobs:
        if state.placement:
            used[state.placement.machine] = used.get(state.placement.machine, 0) + state.placement.devices
    places = (state.placement for state in snapshot.jobs)
    return np.array([place.devices / used[place.machine] if place else 0.0 for place in places])
