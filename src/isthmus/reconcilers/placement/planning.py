"""Planning: asks for a plan for all jobs with deadlines, and says what of it is to be done now.

Jobs without deadlines do not come here, and without promised jobs nothing here costs anything. A plan (`planned`, pure)
is made apart from the rest, and not more often than it is cheap; in between, the room that the last one holds stays
held. The plan is made again when room appears, and from time to time, because time alone can make a job late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.reasons import NO_SITE, read_reasons
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.resources.work.plans import DeviceChosen, PlanOption, PlanStatus
from isthmus.scheduling.demands import Demand, Room
from isthmus.scheduling.placement import Assignment, Budgets, Plan, Verdict, plan, to_hold, why_waiting
from isthmus.scheduling.planning.explaining import no_plan, plan_status
from isthmus.scheduling.planning.planning import Outlook, Seat, Situation, held_rooms, plan_deadlines
from isthmus.scheduling.planning.proposing import proposal

from .surveying import Ground, Survey, Surveyor

AGAIN = 15.0
"""Seconds after which a plan is made again though nothing happened."""
_SHARE = 5.0
"""A plan is not made before this many times what the last one took have passed."""
_SHORTEST = 0.05
MADE_ROOM = "stopped to make room for a job with a deadline"


@dataclass(frozen=True, slots=True)
class Start:
    """A job that is to start now."""

    site: str
    chosen: DeviceChosen | None
    plan: PlanStatus
    demand: Demand


@dataclass(frozen=True, slots=True)
class Decision:
    """What of the plan is to be done now, and the messages of those that wait."""

    starts: Mapping[str, Start] = field(default_factory=dict)
    waits: Mapping[str, tuple[str, PlanStatus]] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    held: Mapping[str, Room] = field(default_factory=dict)
    again_in: float | None = None
    """Seconds until it is worth asking again."""


NOTHING = Decision()


class DeadlinePlanner:
    """Decides for jobs with deadlines."""

    def __init__(
        self,
        index: JobIndex,
        surveyor: Surveyor,
        now: Callable[[], datetime] = utcnow,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index, self._surveyor, self._now, self._clock = index, surveyor, now, clock
        self._began = self._not_before = 0.0
        self._last: tuple[Outlook, Survey] | None = None
        self._due: Survey | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to plan."""
        return bool(self._index.promised or self._index.movable)

    def due(self, ground: Ground) -> Situation | None:
        """What a plan is to be made for now; None: there is nothing to plan, or the last plan is young enough."""
        self._due = None
        self._began = self._clock()
        if not self.is_needed:
            self._last = None
        elif self._last is None or self._began >= self._not_before:
            self._due = self._surveyor.survey(ground, self._now().timestamp())
        return self._due.situation if self._due else None

    def decide(self, ground: Ground, budgets: Budgets, outlook: Outlook | None) -> Decision:
        """What is to be done now, with the plan for what was due; without, if none was or none could be made."""
        if not self.is_needed:
            return NOTHING
        survey, now = self._due, self._clock()
        if survey is not None and outlook is not None:
            self._last = (outlook, survey)
            spent = now - self._began
            self._not_before = now + max(_SHORTEST, _SHARE * spent)
            return self._decision(outlook, survey, ground, budgets)
        if survey is not None or self._last is None:
            return Decision(again_in=AGAIN)
        outlook, survey = self._last
        waiting = {uid: seat for uid, seat in outlook.seats.items() if uid in self._index.promised}
        held = self._held(replace(outlook, seats=waiting), survey, ground, everything=True)
        return Decision(held=held, again_in=max(0.0, self._not_before - now))

    def _decision(self, outlook: Outlook, survey: Survey, ground: Ground, budgets: Budgets) -> Decision:
        now, tasks = survey.situation.now, survey.tasks
        starts: dict[str, Start] = {}
        waits: dict[str, tuple[str, PlanStatus]] = {}
        for uid in tasks:
            seat = outlook.seats.get(uid)
            if seat is None:
                waits[uid] = _unseated(uid, survey, outlook, ground)
                continue
            reported = _reported(uid, survey, seat)
            if not outlook.starts_now(uid, now):
                waits[uid] = ("Planned", reported)
                continue
            demand = seat.bid.way.demand
            if over := budgets.exceeded(demand):
                verdict = _verdict(demand, ground, over)
                waits[uid] = (verdict.reason, no_plan(verdict.message, now, deadline=survey.deadlines[uid]))
                continue
            budgets.take(demand)
            starts[uid] = Start(seat.bid.way.site, seat.bid.way.chosen, reported, demand)
        seats = {uid: seat for uid, seat in outlook.seats.items() if uid in starts or waits[uid][0] == "Planned"}
        held = self._held(replace(outlook, seats=seats), survey, ground, everything=False)
        for start in starts.values():
            held[start.site] = held.get(start.site, Room()).plus(start.demand.room)
        return Decision(starts, waits, tuple(stop.uid for stop in outlook.stops), held, AGAIN)

    def _held(self, outlook: Outlook, survey: Survey, ground: Ground, *, everything: bool) -> dict[str, Room]:
        """What jobs without deadlines must leave free: the room of those that start later."""
        free = {site.name: site.capacity.plus(self._index.ledger.taken(site.name), -1) for site in ground.sites}
        now = survey.situation.now - 1.0 if everything else survey.situation.now
        held: dict[str, Room] = {}
        for site, room in held_rooms(outlook, now):
            if site in free:
                kept = to_hold(room, free[site]) if not everything else room
                free[site] = free[site].plus(kept, -1)
                held[site] = held.get(site, Room()).plus(kept)
        return held


class PlacementPass(NamedTuple):
    """What came of looking at all jobs that wait once."""

    made: Plan
    decided: Decision
    """For those with deadlines."""
    spent: float
    """Seconds that the event loop was held."""


def place(index: JobIndex, planner: DeadlinePlanner, ground: Ground, outlook: Outlook | None) -> PlacementPass:
    """Which jobs start now, and where: those with deadlines by their plan, the others in what that leaves free.

    `outlook` is the plan for what was `due`.

    What happens and what `isthmus plan` says are both decided here.
    """
    began = time.monotonic()
    budgets = Budgets(index.ledger, ground.tenants, ground.full)
    decided = planner.decide(ground, budgets, outlook)
    made = plan(index.ledger, ground.sites, ground.tenants, held=decided.held, budgets=budgets)
    made.assignments.extend(Assignment(uid, start.site) for uid, start in decided.starts.items())
    return PlacementPass(made, decided, time.monotonic() - began)


def planned(situation: Situation) -> Outlook:
    """The plan, with what the optimiser proposes among the candidates."""
    wishes = proposal(situation)
    return plan_deadlines(replace(situation, proposals=(wishes,)) if wishes else situation)


def answer(uid: str, survey: Survey, outlook: Outlook, ground: Ground, made: Plan | None = None) -> PlanStatus:
    """What is said about one job; about one without a deadline, what placement makes of it."""
    seat = outlook.seats.get(uid)
    verdict = made.verdicts.get(survey.ways[uid].demands[0]) if made else None
    if verdict is not None and (seat is None or verdict.reason.startswith("Quota")):
        return no_plan(verdict.message, survey.situation.now)
    if seat is None:
        return _unseated(uid, survey, outlook, ground)[1]
    if made is None:
        return _reported(uid, survey, seat)
    return _reported(uid, survey, _seat_by_room(seat, next((a.site for a in made.assignments if a.uid == uid), None)))


def _seat_by_room(seat: Seat, site: str | None) -> Seat:
    """The seat that a job without a deadline gets: at the site that placement gives it, or where it can start first."""
    bids = sorted((seat.bid, *seat.others), key=lambda bid: (bid.way.site != site, bid.start, *bid.rank))
    return Seat(bids[0], tuple(bids[1:]))


def _reported(uid: str, survey: Survey, seat: Seat) -> PlanStatus:
    left_out = survey.ways[uid].left_out
    now = survey.situation.now
    return plan_status(survey.tasks[uid], seat, now, deadline=survey.deadlines[uid], left_out=left_out)


def _unseated(uid: str, survey: Survey, outlook: Outlook, ground: Ground) -> tuple[str, PlanStatus]:
    ways, now, deadline = survey.ways[uid], survey.situation.now, survey.deadlines[uid]
    if uid in outlook.crowded:
        reported = f"waits behind {len(outlook.seats)} jobs whose deadlines are more pressing"
        return "Planned", no_plan(reported, now, deadline=deadline)
    if not ground.sites:
        verdict = why_waiting(ways.demands[0], (), (), None, None)
        return verdict.reason, no_plan(verdict.message, now, deadline=deadline)
    if ways.found:
        reported = f"waits for room at {', '.join(sorted({way.site for way in ways.found})[:5])}"
        return "InsufficientRoom", no_plan(reported, now, deadline=deadline, left_out=ways.left_out)
    listed = read_reasons("; ".join([NO_SITE, *ways.left_out]))
    return "NoSiteFits", no_plan(str(listed), now, deadline=deadline, left_out=ways.left_out)


def _verdict(demand: Demand, ground: Ground, over: str) -> Verdict:
    return why_waiting(demand, ground.sites, ground.sites, ground.tenants.get(demand.tenant), over)


def is_news(old: PlanStatus | None, new: PlanStatus) -> bool:
    """Whether a plan differs so much from what the status says that it is worth a write."""
    if old is None or old.deadline != new.deadline or (old.chosen is None) != (new.chosen is None):
        return True
    if old.chosen is None or new.chosen is None:
        return old.message != new.message
    if _what(old.chosen) != _what(new.chosen):
        return True
    before, after = (parse_timestamp(option.starts_at).timestamp() for option in (old.chosen, new.chosen))
    wait = after - parse_timestamp(new.decided_at).timestamp()
    return abs(after - before) > max(30.0, 0.2 * wait)


def _what(option: PlanOption) -> tuple[object, ...]:
    return option.site, option.class_, option.count, option.meets_deadline, option.source
