"""Optimising: our own method.

What each job gains from each option is known (`valuing`). A price per machine is searched at which the jobs, each
choosing what is best for itself, fit on the machines there are; with machines to spare it is zero. The choices are
packed (`packing`) and refined (`refining`). Where changes cost time, a second plan leaves alone whoever runs well.
The plan that is expected to cost least is taken, and the greedy one is always among the candidates, so that the
plan is never worse than that by its own measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .models import Plan, Snapshot, sound
from .ordering import greedy
from .packing import Pack, pack
from .refining import Board, dissolve, fill
from .settling import Load, settle
from .simulating import unplaceable
from .valuing import Columns, Floats, Market, Values, market_of, value

_SMALL = 8
"""With so few machines, plans for fewer machines are tried too: then one more machine never makes a plan worse."""
_HALVINGS = 12
_PRICES = (0.25, 1.0, 4.0)
_TINY = 1e-9


def optimise(snapshot: Snapshot) -> Plan:
    """The plan that is expected to cost least."""
    market = market_of(snapshot.catalogue, snapshot.objective)
    rejected = {
        state.job.name: unplaceable(state.job, snapshot.catalogue)
        for state in snapshot.jobs
        if market.row(state.job.profile) is None
    }
    snapshot = _placeable(sound(snapshot), market)
    if not snapshot.jobs or not snapshot.machines:
        return Plan(rejected=rejected)
    values = value(snapshot, market)
    best = max(_candidates(snapshot, market, values), key=lambda plan: _worth(snapshot, market, values, plan))
    return replace(best, rejected=rejected)


def expected_cost(snapshot: Snapshot, plan: Plan) -> float:
    """What a plan and all that follows it is expected to cost: the measure that `optimise` decides by."""
    market = market_of(snapshot.catalogue, snapshot.objective)
    snapshot = _placeable(sound(snapshot), market)
    if not snapshot.jobs:
        return 0.0
    values = value(snapshot, market)
    return float(values.wait.sum()) - _worth(snapshot, market, values, plan)[1]


def _placeable(snapshot: Snapshot, market: Market) -> Snapshot:
    jobs = tuple(state for state in snapshot.jobs if market.row(state.job.profile) is not None)
    return snapshot if len(jobs) == len(snapshot.jobs) else replace(snapshot, jobs=jobs)


def _worth(snapshot: Snapshot, market: Market, values: Values, plan: Plan) -> tuple[bool, float]:
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


def _candidates(snapshot: Snapshot, market: Market, values: Values) -> Iterator[Plan]:
    count = len(snapshot.machines)
    bound = {row for row, state in enumerate(snapshot.jobs) if state.placement and not state.job.restartable}
    for limit in range(1, count + 1) if count <= _SMALL else (count,):
        if (fresh := _plan(_Desk(snapshot, market, values, bound, limit))) is not None:
            yield fresh[0]
        if not snapshot.overheads.free:
            yield from _calm(_Desk(snapshot, market, values, bound, limit), fresh[1] if fresh is not None else 0.0)
        if not bound:
            yield greedy(replace(snapshot, machines=snapshot.machines[:limit]))


def _calm(desk: _Desk, price: float) -> Iterator[Plan]:
    """Plans that leave alone who runs well: all of them, or, where machines are scarce, who can pay for them."""
    first = _keeping(desk, 0.0)
    if first is None:
        return
    yield first[0]
    if first[1] > 0:
        dearest = max(max(rates) for rates in desk.market.rates.values())
        for factor in _PRICES:
            if (found := _keeping(desk, factor * (price or dearest))) is not None:
                yield found[0]


def _keeping(desk: _Desk, price: float) -> tuple[Plan, float] | None:
    kept = desk.kept | _content(desk.snapshot, desk.market, desk.values, price)
    return _plan(replace(desk, kept=kept))


def _content(snapshot: Snapshot, market: Market, values: Values, price: float) -> set[int]:
    """Running jobs that gain no more from any change, at a price for machines."""
    rates = market.shares + price * market.slots
    change = np.where(values.useful, values.gain - rates * values.run, -np.inf).max(axis=1)
    if price > 0:
        change = np.maximum(change, 0.0)
    paid = market.shares[values.column] + price * _occupied(snapshot)
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


@dataclass(frozen=True, slots=True)
class _Desk:
    """A snapshot with its values, the jobs that must stay, and how many machines may run."""

    snapshot: Snapshot
    market: Market
    values: Values
    kept: set[int]
    limit: int

    def anchors(self) -> list[Pack]:
        """A pack for each machine that has jobs which stay."""
        packs: dict[str, Pack] = {}
        for row in sorted(self.kept):
            state = self.snapshot.jobs[row]
            assert state.placement is not None
            machine = state.placement.machine
            kind = self.snapshot.configured[machine]
            found = packs.setdefault(machine, Pack(kind.device, 0, [], machine, kind))
            found.used += state.placement.devices
            found.jobs.append(row)
            found.fixed |= not state.job.restartable
        return list(packs.values())

    def board(self, packs: list[Pack], chosen: dict[int, int]) -> Board:
        """The anchors and other packs together."""
        stay = {row: int(self.values.column[row]) for row in self.kept}
        bound = frozenset(row for row in self.kept if not self.snapshot.jobs[row].job.restartable)
        packs = self.anchors() + packs
        return Board(self.market, self.values, packs, stay | chosen, set(self.kept), bound, self.limit)

    def plan(self, board: Board) -> Plan:
        """What the board shows."""
        columns, jobs = self.market.columns, self.snapshot.jobs
        loads = [
            Load(board.kind(p), {jobs[job].job.name: columns[board.chosen[job]][1] for job in p.jobs}, p.home)
            for p in board.packs
        ]
        return settle(self.snapshot, loads)


def _plan(desk: _Desk) -> tuple[Plan, float] | None:
    """Each job what is best for it, at a price at which all fit; the plan and the price."""
    market, values = desk.market, desk.values
    room = desk.limit - len(desk.anchors())
    if room < 0:
        return None
    free = np.array([row not in desk.kept for row in range(len(values.wait))])
    net = np.where(values.useful & free[:, None], values.gain - market.shares * values.run, -np.inf)
    fit = _fit(market, net, np.where(values.useful, market.slots * values.run, 0.0), room, values.slack)
    board = desk.board(fit.packs, {job: column for job, column in enumerate(fit.columns.tolist()) if column >= 0})
    dissolve(board)
    fill(board)
    if not board.packs:  # somebody has to run, or nothing would ever happen again: who waits least well
        board = desk.board([], {})
        if not board.packs:
            alone = values.gain - market.alone * values.run
            job, column = (int(index) for index in np.unravel_index(int(alone.argmax()), alone.shape))
            board = desk.board([Pack(*market.columns[column], [job])], {job: column})
        fill(board)
    return desk.plan(board), fit.price


class _Fit(NamedTuple):
    """Choices that fit at a price for a machine."""

    price: float
    columns: Columns
    """The option of each job; -1 if it waits."""
    packs: list[Pack]


def _fit(market: Market, net: Floats, slots: Floats, room: int, slack: Floats) -> _Fit:
    """The choices at the lowest price that makes them fit.

    Many jobs change their mind at the same price: who must hurry at some time is indifferent when. So those that
    would choose otherwise at a slightly lower price have it, who has the least slack first, as many as fit. Without
    this, devices stay idle now, and later all hurry at once.
    """

    def choose(price: float) -> Columns:
        score = net - price * slots
        columns = score.argmax(axis=1)
        return np.where(np.take_along_axis(score, columns[:, None], 1)[:, 0] >= -_TINY, columns, -1)

    def attempt(price: float, columns: Columns) -> _Fit | None:
        jobs = np.nonzero(columns >= 0)[0]
        packs = pack(market, jobs.tolist(), columns[jobs].tolist(), room)
        return None if packs is None else _Fit(price, columns, packs)

    if (found := attempt(0.0, choose(0.0))) is not None:
        return found
    low, high = 0.0, max(max(rates) for rates in market.rates.values()) or 1.0
    while (found := attempt(high, choose(high))) is None:
        low, high = high, high * 4
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (better := attempt(middle, choose(middle))) is None:
            low = middle
        else:
            found, high = better, middle
    dearer, cheaper = found.columns, choose(low)
    torn = np.nonzero(dearer != cheaper)[0]
    torn = torn[np.argsort(slack[torn], kind="stable")]
    some, many = 0, len(torn)
    while some < many - 1:
        middle_of = (some + many) // 2
        columns = dearer.copy()
        columns[torn[:middle_of]] = cheaper[torn[:middle_of]]
        if (better := attempt(high, columns)) is None:
            many = middle_of
        else:
            found, some = better, middle_of
    return found
