"""Planning: every job with a deadline gets a way and a time, at the lowest expected cost.

Jobs are taken one after the other. Each gets the way that costs it least as things then are: the price of its
devices, and what every second after its deadline costs. Room that is free later counts, so a job may wait for cheaper
devices if its deadline allows. Which job goes first decides much; several orders are tried, the greedy one among them,
and the best is improved by moving late jobs forward. An order made of what the optimiser in `deadlines` proposes is
finished beside it where it begins better, and the cheaper of the two is taken. Who would still be late may have
restartable jobs stopped, if that saves more than it costs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from isthmus.resources.work.plans import Saving
from isthmus.scheduling.deadlines.models import CostObjective
from isthmus.scheduling.demands import Room

from .timelines import Timeline
from .ways import Way

MOST_TASKS = 128
"""Jobs that are planned together, the most pressing ones. The others wait behind them."""
_EFFORT = 3000
"""Ways looked at while improving a plan; with few jobs that is many attempts, with many it is none."""
_STOPS_TRIED = 8
_STOPS_TOGETHER = 4
_WORTH = 0.05
"""Stopping others must save at least this share of what being late costs."""
_PER_KWH = CostObjective().per_kwh
_NOW = 1e-3


@dataclass(frozen=True, slots=True)
class Task:
    """A job to be placed. Times are seconds on one clock."""

    uid: str
    tenant: str
    ways: tuple[Way, ...]
    deadline: float = inf
    weight: float = 0.0
    """Cost of a second late."""
    saving: Saving = Saving.COST
    remaining: float = 1.0
    after: float = -inf
    """Not before this."""

    def latest(self) -> float:
        """The last moment to start in time, the fastest way."""
        return self.deadline - min((way.cautious for way in self.ways), default=0.0) * self.remaining


@dataclass(frozen=True, slots=True)
class Holder:
    """A restartable job that runs. `task` is what is left of it if it is stopped, with what the stop loses."""

    uid: str
    site: str
    room: Room
    end: float
    grace: float
    task: Task
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Bid:
    """A way at a time, and what it costs."""

    way: Way
    start: float
    end: float
    late: float
    price: float
    joules: float | None
    total: float

    @property
    def rank(self) -> tuple[float, float, str]:
        """The cheapest first, then who ends first."""
        return self.total, self.end, self.way.site


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """A running job that makes room for another, or for itself elsewhere."""

    uid: str
    benefits: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a plan depends on."""

    now: float
    sites: Mapping[str, Timeline]
    tasks: tuple[Task, ...]
    holders: tuple[Holder, ...] = ()
    restore: float = 10.0
    """Seconds that a stopped job needs before it goes on."""
    proposals: tuple[Mapping[str, tuple[str, tuple[str, int]]], ...] = ()
    """For jobs by uid, the site and devices that somebody else would give them; those it names go first."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What a job gets, and what else there was when it was its turn."""

    bid: Bid
    others: tuple[Bid, ...] = ()
    stops: bool = False
    """Others are stopped for it."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan. Who has no seat fits nowhere, or waits behind the most pressing."""

    seats: Mapping[str, Seat] = field(default_factory=dict)
    stops: tuple[PlannedStop, ...] = ()
    total: float = 0.0
    crowded: frozenset[str] = frozenset()

    def starts_now(self, uid: str, now: float) -> bool:
        """Whether it is time."""
        return uid in self.seats and self.seats[uid].bid.start <= now + _NOW


def plan_deadlines(situation: Situation) -> Outlook:
    """The plan that is expected to cost least."""
    pressing = sorted((task for task in situation.tasks if task.ways), key=lambda task: (task.latest(), task.uid))
    tasks, crowded = pressing[:MOST_TASKS], frozenset(task.uid for task in pressing[MOST_TASKS:])
    effort = max(0, _EFFORT // max(1, sum(len(task.ways) for task in tasks)))
    first = min((draft_of(situation, order) for order in _orders(tasks)), key=_total)
    begun = [first, *(d for o in _proposed(situation, tasks) if (d := draft_of(situation, o)).total < first.total)]
    best = min((_finished(situation, draft, effort) for draft in begun), key=_total)
    return Outlook(best.seats, best.stops, best.total, crowded)


def bids_for(task: Task, situation: Situation, sites: Mapping[str, Timeline]) -> list[Bid]:
    """What every way would cost now, the cheapest first."""
    found = []
    for way in task.ways:
        line = sites.get(way.site)
        extra = situation.restore if task.remaining < 1 else 0.0
        whole = way.cautious * task.remaining + extra
        start = line.earliest(way.room, whole, max(situation.now, task.after)) if line else None
        if start is not None:
            found.append(_bid(task, way, start, extra))
    return sorted(found, key=lambda bid: bid.rank)


def _bid(task: Task, way: Way, start: float, extra: float) -> Bid:
    seconds = way.seconds * task.remaining + extra
    late = max(0.0, start + way.cautious * task.remaining + extra - task.deadline)
    price = way.rate * seconds
    joules = None if way.watts is None else way.watts * seconds
    saved = (joules or 0.0) * _PER_KWH / 3.6e6 if task.saving is Saving.ENERGY else price
    return Bid(way, start, start + seconds, late, price, joules, saved + task.weight * late)


@dataclass(frozen=True, slots=True)
class _Draft:
    order: tuple[Task, ...]
    seats: Mapping[str, Seat]
    total: float
    stops: tuple[PlannedStop, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftOrder:
    """In which order tasks are drafted, and what is wished for some of them."""

    tasks: tuple[Task, ...]
    wishes: Mapping[str, tuple[str, tuple[str, int]]] = field(default_factory=dict)


def _total(draft: _Draft) -> float:
    return draft.total


def _finished(situation: Situation, draft: _Draft, effort: int) -> _Draft:
    """The draft improved, with the stops that pay."""
    return _with_stops(situation, _improved(situation, draft, effort))


def _orders(pressing: Sequence[Task]) -> Iterator[DraftOrder]:
    yield DraftOrder(tuple(pressing))  # greedy: the most pressing first
    if len(pressing) > 1:
        yield DraftOrder(tuple(sorted(pressing, key=lambda task: (-task.weight, task.latest(), task.uid))))
        shortest = {task.uid: min(way.seconds for way in task.ways) * task.remaining for task in pressing}
        yield DraftOrder(tuple(sorted(pressing, key=lambda task: (shortest[task.uid], task.uid))))


def _proposed(situation: Situation, pressing: Sequence[Task]) -> Iterator[DraftOrder]:
    for proposal in situation.proposals:
        yield DraftOrder(tuple(sorted(pressing, key=lambda task: task.uid not in proposal)), proposal)


def draft_of(situation: Situation, order: DraftOrder, sites: Mapping[str, Timeline] | None = None) -> _Draft:
    """One after the other, each what is best for it."""
    lines = {name: line.copy() for name, line in (sites or situation.sites).items()}
    seats: dict[str, Seat] = {}
    total = 0.0
    for task in order.tasks:
        bids = bids_for(task, situation, lines)
        if not bids:
            continue
        wish = order.wishes.get(task.uid)
        bid = next((bid for bid in bids if wish == (bid.way.site, bid.way.key)), bids[0])
        extra = situation.restore if task.remaining < 1 else 0.0
        lines[bid.way.site].take(bid.way.room, bid.start, bid.start + bid.way.cautious * task.remaining + extra)
        seats[task.uid] = Seat(bid, tuple(other for other in bids if other is not bid))
        total += bid.total
    return _Draft(order.tasks, seats, total)


def _improved(situation: Situation, draft: _Draft, tries: int) -> _Draft:
    """Late jobs, the costliest first, are moved to the front, as long as that helps."""
    if len(draft.order) < 2:
        return draft
    while tries > 0:
        late = [task for task in draft.order if task.uid in draft.seats and draft.seats[task.uid].bid.late > 0]
        late.sort(key=lambda task: -draft.seats[task.uid].bid.late * task.weight)
        for task in late[:tries]:
            tries -= 1
            moved = (task, *(other for other in draft.order if other is not task))
            other = draft_of(situation, DraftOrder(moved))
            if other.total < draft.total - 1e-9:
                draft = other
                break
        else:
            return draft
    return draft


def _with_stops(situation: Situation, draft: _Draft) -> _Draft:
    """For the job that is late at the highest cost, stop others, if that is cheaper for all together."""
    late = [task for task in draft.order if _lateness(draft, task) > 0]
    late.sort(key=lambda task: -_lateness(draft, task))
    for task in late[:_STOPS_TRIED]:
        threshold = draft.total - _WORTH * _lateness(draft, task)
        for holders in _victims(situation, task):
            tried = _stopping(situation, draft, task, holders)
            if tried is not None and tried.total < threshold:
                return tried  # one decision at a time; the next pass sees what came of it
    return _with_move(situation, draft)


def _with_move(situation: Situation, draft: _Draft) -> _Draft:
    """A running job that would be late may be stopped for its own sake: elsewhere it may still be in time."""
    for holder in situation.holders:
        late = max(0.0, holder.end - holder.task.deadline) * holder.task.weight
        tried = _stopping(situation, draft, None, [holder]) if late > 0 else None
        if tried is not None and tried.total < draft.total - _WORTH * late:
            return tried
    return draft


def _lateness(draft: _Draft, task: Task) -> float:
    seat = draft.seats.get(task.uid)
    return seat.bid.late * task.weight if seat else 0.0


def _victims(situation: Situation, task: Task) -> Iterator[Sequence[Holder]]:
    """Sets of holders at one site, few before many, those first who lose least."""
    for site in dict.fromkeys(way.site for way in task.ways):
        useful = [h for h in situation.holders if h.site == site and any(_helps(h, w) for w in task.ways)]
        useful.sort(key=lambda holder: (holder.task.weight, -holder.task.remaining, holder.uid))
        useful = useful[:_STOPS_TRIED]
        yield from ([holder] for holder in useful)
        yield from (useful[:size] for size in range(2, min(_STOPS_TOGETHER, len(useful)) + 1))


def _helps(holder: Holder, way: Way) -> bool:
    if holder.site != way.site:
        return False
    return any(holder.room.of(name) for name, _ in way.room.devices) or (
        not way.room.devices and holder.room.milli_cpus > 0
    )


def _stopping(situation: Situation, draft: _Draft, task: Task | None, holders: Sequence[Holder]) -> _Draft | None:
    """The plan with these stopped, for a task or for their own sake: they wait like others, with what they lose."""
    lines = {name: line.copy() for name, line in situation.sites.items()}
    before = draft.total
    for holder in holders:
        lines[holder.site].give(holder.room, situation.now + holder.grace, holder.end)
        staying = max(0.0, holder.end - holder.task.deadline) * holder.task.weight
        before += staying + holder.rate * max(0.0, holder.end - situation.now)
    again = tuple(replace(holder.task, after=situation.now + holder.grace) for holder in holders)
    others = tuple(other for other in draft.order if other is not task)
    tried = draft_of(situation, DraftOrder((*([task] if task else []), *others, *again)), lines)
    if any(holder.uid not in tried.seats for holder in holders) or (task and task.uid not in tried.seats):
        return None
    grace = sum(holder.rate * holder.grace for holder in holders)
    seats = {uid: seat for uid, seat in tried.seats.items() if all(uid != holder.uid for holder in holders)}
    if task is not None:
        seats[task.uid] = replace(seats[task.uid], stops=True)
    stops = tuple(PlannedStop(holder.uid, task.uid if task else holder.uid) for holder in holders)
    # Measured against what it would cost if the holders went on.
    return _Draft(draft.order, seats, draft.total + (tried.total + grace - before), stops)


def held_rooms(outlook: Outlook, now: float) -> Iterable[tuple[str, Room]]:
    """Where, and how much, jobs will want that do not start yet; in their order."""
    later = [seat.bid for seat in outlook.seats.values() if seat.bid.start > now + _NOW]
    return [(bid.way.site, bid.way.room) for bid in sorted(later, key=lambda bid: bid.start)]
