"""What to do about a machine's power, and what to say of it. Pure: time is an argument.

A request is written down before it is sent, so that whoever comes after a crash knows of it. A BMC that says yes and
does nothing is asked again after a while. The power is cut only where the object says after how long.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import parse_duration
from isthmus.hosts.base import HostSeen
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import HostPhase
from isthmus.resources.hosts import Host, HostPower, HostStatus, PowerRequest, Reset

AGAIN_SECONDS = 120.0
"""After this long without a change a BMC is asked again."""


class PowerDecision(NamedTuple):
    """What to write, and then what to ask the BMC for."""

    status: HostStatus
    reset: Reset | None = None


def decide(host: Host, seen: HostSeen, now: datetime) -> PowerDecision:
    """After a look at a machine."""
    wanted, power = host.spec.power, seen.power
    if host.spec.maintenance:
        return PowerDecision(_status(host, seen, now, HostPhase.MAINTENANCE, "spec.maintenance is set"))
    if wanted is None or power == wanted:
        return PowerDecision(_status(host, seen, now, HostPhase.READY))
    asked = host.status.requested
    if power is HostPower.UNKNOWN:
        message = "the BMC does not say whether it has power; nothing is done"
        return PowerDecision(_status(host, seen, now, HostPhase.CHANGING, message, asked))
    reset = Reset.ON if wanted == "On" else _off(host, now)
    same = asked is not None and (asked.reset == Reset.ON) == (reset is Reset.ON)
    waiting = asked is not None and asked.reset == reset and _seconds(asked.at, now) < AGAIN_SECONDS
    if waiting or power not in (HostPower.ON, HostPower.OFF):
        return PowerDecision(_status(host, seen, now, HostPhase.CHANGING, _waits(host, asked), asked))
    since = asked.since if asked is not None and same else timestamp(now)
    request = PowerRequest(reset=reset, at=timestamp(now), since=since)
    message = f"the BMC is asked for {reset.value}"
    return PowerDecision(_status(host, seen, now, HostPhase.CHANGING, message, request), reset)


def unreachable(host: Host, message: str, now: datetime) -> HostStatus:
    """After a look that was not answered as it should: what was known stays known."""
    return _noted(host, now, HostPhase.UNREACHABLE, message, ConditionStatus.FALSE)


def _off(host: Host, now: datetime) -> Reset:
    asked, patience = host.status.requested, host.spec.force_after
    if asked is None or patience is None or asked.reset == Reset.ON:
        return Reset.GRACEFUL_SHUTDOWN
    cut = asked.reset == Reset.FORCE_OFF or _seconds(asked.since, now) >= parse_duration(patience)
    return Reset.FORCE_OFF if cut else Reset.GRACEFUL_SHUTDOWN


def _seconds(since: str, now: datetime) -> float:
    return (now - parse_timestamp(since)).total_seconds()


def _waits(host: Host, asked: PowerRequest | None) -> str:
    """The same at every look, so that looking again writes nothing."""
    if asked is None:
        return "its power is changing"
    asking = f"the BMC was asked for {asked.reset} at {asked.since}"
    stays = asked.reset == Reset.GRACEFUL_SHUTDOWN and host.spec.force_after is None
    return f"{asking}; if its system does not shut down, set spec.forceAfter to cut the power" if stays else asking


def _status(
    host: Host,
    seen: HostSeen,
    now: datetime,
    phase: HostPhase,
    message: str | None = None,
    requested: PowerRequest | None = None,
) -> HostStatus:
    noted = _noted(host, now, phase, message, ConditionStatus.TRUE)
    return noted.model_copy(
        update={
            "power": seen.power,
            "health": seen.health or None,
            "inventory": seen.inventory,
            "requested": requested,
        }
    )


def _noted(host: Host, now: datetime, phase: HostPhase, message: str | None, answered: ConditionStatus) -> HostStatus:
    said = message[:2000] if message and answered is ConditionStatus.FALSE else ""
    condition = Condition(type="Reachable", status=answered, reason="", message=said)
    return host.status.model_copy(
        update={
            "phase": phase,
            "message": message[:2000] if message else None,
            "probed_at": timestamp(now),
            "conditions": set_condition(host.status.conditions, condition, timestamp(now)),
            "observed_generation": host.metadata.generation,
        }
    )
