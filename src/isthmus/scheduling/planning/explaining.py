"""Explaining: a job's seat in the plan, as its status says it: why there, the alternatives, cost and end of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf

from isthmus._kit.clock import timestamp
from isthmus._kit.durations import format_duration
from isthmus.resources.work.plans import MAX_ALTERNATIVES, PlanOption, PlanStatus, ProfileSource, Saving

from .planning import Bid, Seat, Task

_SOON = 1.0


def plan_status(
    task: Task, seat: Seat, now: float, *, deadline: str | None = None, left_out: Sequence[str] = ()
) -> PlanStatus:
    """What to write about a job that has a seat."""
    return PlanStatus(
        decided_at=_time(now),
        message=_why(task, seat, now),
        deadline=deadline,
        chosen=_option(seat.bid, stops=seat.stops),
        alternatives=[_option(bid) for bid in seat.others[:MAX_ALTERNATIVES]],
        left_out=list(left_out),
    )


def no_plan(message: str, now: float, *, deadline: str | None = None, left_out: Sequence[str] = ()) -> PlanStatus:
    """What to write about a job that has none."""
    return PlanStatus(decided_at=_time(now), message=message, deadline=deadline, left_out=list(left_out))


def named(bid: Bid) -> str:
    """`2 gpu at alpha`, or the site alone for work on cpus."""
    chosen = bid.way.chosen
    devices = [(chosen.class_, chosen.count)] if chosen else bid.way.room.devices
    reported = ", ".join(f"{count} {name}" for name, count in devices)
    return f"{reported} at {bid.way.site}" if reported else bid.way.site


def _why(task: Task, seat: Seat, now: float) -> str:
    bid = seat.bid
    if task.deadline == inf:
        room = "has room now" if bid.start <= now + _SOON else "is expected to have room first"
        others = ", the cheapest that does" if seat.others and bid.start <= now + _SOON else ""
        head = f"{named(bid)} {room}{others}; there is no deadline"
    elif task.deadline <= now:
        head = f"the deadline has passed; {named(bid)} costs least, every second late counted"
    elif bid.late <= 0:
        cheaper = any(other.price < bid.price - 1e-9 for other in seat.others)
        saved = "energy" if task.saving is Saving.ENERGY else "cost"
        rest = "" if not seat.others else " though others are cheaper" if cheaper else f" at the lowest {saved}"
        head = f"{named(bid)} meets the deadline{rest}"
    else:
        in_time = any(other.late <= 0 for other in seat.others)
        rest = "being in time would cost more" if in_time else "nothing can be in time"
        head = f"{named(bid)} is expected {format_duration(round(bid.late) or 1)} late; {rest}"
    parts = [head]
    if bid.way.source is ProfileSource.ASSUMED:
        parts.append("without a profile an hour is assumed")
    elif bid.way.source is ProfileSource.MODEL:
        parts.append(f"its run time is a model's, {bid.way.spread:.0%} uncertain")
    if seat.stops:
        parts.append("restartable jobs are stopped to make room")
    elif bid.start > now + _SOON:
        parts.append(f"starts in about {format_duration(round(bid.start - now))}")
    return "; ".join(parts)


def _option(bid: Bid, *, stops: bool = False) -> PlanOption:
    chosen, devices = bid.way.chosen, bid.way.room.devices
    name, count = (chosen.class_, chosen.count) if chosen else devices[0] if devices else (None, 0)
    return PlanOption(
        site=bid.way.site,
        class_=name,
        count=count,
        starts_at=_time(bid.start),
        ends_at=_time(bid.end),
        seconds=round(bid.end - bid.start, 3),
        uncertainty=round(bid.way.spread, 3),
        source=bid.way.source,
        cost=round(bid.price, 6),
        energy_joules=None if bid.joules is None else round(bid.joules, 3),
        late_seconds=round(bid.late, 3),
        meets_deadline=bid.late <= 0,
        stops_others=True if stops else None,
    )


def _time(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))
