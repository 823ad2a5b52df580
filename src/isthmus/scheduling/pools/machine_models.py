"""What the planner of pools is given, and what it answers. All times are seconds on one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """A pool of machines in one role."""

    name: str
    minimum: int = 0
    maximum: int = 1_000_000
    follows: bool = True
    """Whether its size follows demand. One that does not is left as it is."""


@dataclass(frozen=True, slots=True)
class PooledHost:
    """A machine, and what is known about its work."""

    name: str
    pool: str
    shape: str = ""
    """Machines of one shape can take each other's place."""
    on: bool = True
    free_at: float | None = None
    """When the work on it is expected to end; None: it is idle."""
    since: float = 0.0
    """Since when it has been idle, or off."""
    arrived: float = float("-inf")
    """When it came into this pool."""
    kept: bool = False
    """A reservation, maintenance or an administrator keeps it where it is."""
    moving: bool = False
    """It is on its way into its pool, and is counted there."""


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """A job that waits at a pool, in the order in which its queue will serve it."""

    pool: str
    hosts: int
    seconds: float
    """How long it is expected to run."""
    latest: float | None = None
    """When it must have started for its deadline to be met."""


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """How long things take, as measured before."""

    move: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """From the request until the machine can be scheduled at the other pool, by source and target."""
    usual: float = 60.0
    """The same where nothing was measured."""
    start: float = 120.0
    """From off to schedulable."""

    def of(self, source: str, target: str) -> float:
        """Seconds that a move takes."""
        return self.move.get((source, target), self.usual) if source != target else 0.0


@dataclass(frozen=True, slots=True)
class PoolTuning:
    """How eagerly sizes follow demand."""

    settle: float = 300.0
    """A machine stays in its pool at least so long."""
    rest: float = 900.0
    """A machine that was idle for so long is switched off."""
    horizon: float = 600.0
    """Waiting work that the pool does in this time by itself needs no more machines."""
    reserve: float = 0.05
    """The part of a pool's machines that stays on although idle, for work that comes suddenly."""
    keeps_from_short: float = 0.3
    """How many times the machines that it used lately a pool keeps when others want them for a moment …"""
    keeps_from_long: float = 1.2
    """… and when they want them for long."""
    memory: float = 3600.0
    """How long what a pool used counts: after this time, about a third of it does."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Everything that a decision looks at."""

    now: float
    pools: tuple[PoolBounds, ...]
    hosts: tuple[PooledHost, ...]
    waiting: tuple[WaitingWork, ...]
    times: MoveTimes = MoveTimes()
    tuning: PoolTuning = PoolTuning()
    used: Mapping[str, float] = field(default_factory=dict)
    """How many machines each pool used lately (see `lately`). It keeps so many, because it will need them again."""
    fits: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Which shapes a pool takes; a pool that is not named takes all."""


class HostAction(StrEnum):
    """What is to be done with a machine."""

    MOVE = "move"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class HostChange:
    """One machine's change, and why."""

    host: str
    action: HostAction
    source: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What the planner proposes."""

    changes: tuple[HostChange, ...]
    sizes: Mapping[str, int]
    """How many machines that are on each pool will have."""
    reasons: Mapping[str, str]
    """One sentence for each pool."""
