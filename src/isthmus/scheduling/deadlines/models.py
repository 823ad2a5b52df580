"""What the optimiser sees (a snapshot) and what it says (a plan).

Jobs progress by fractions: a job with `remaining` 0.5 needs half the seconds that its profile states for the
devices it is given. A machine is a place that can be given any configuration of the catalogue; while it runs, all
its devices are paid, used or not. Times are seconds on any common clock, prices are per hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf, isfinite

from isthmus.errors import Cause, Invalid


@dataclass(frozen=True, slots=True)
class MachineType:
    """A configuration of the catalogue: so many devices of one type, for a price per hour and a power in watts."""

    name: str
    device: str
    devices: int
    price: float
    power: float = 0.0

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise Invalid(f"machine type {self.name} has {self.devices} devices; it needs at least one")
        if not (isfinite(self.price) and self.price >= 0 and isfinite(self.power) and self.power >= 0):
            raise Invalid(f"machine type {self.name}: price and power must be numbers of at least 0")


@dataclass(frozen=True)
class RuntimeProfile:
    """Expected run time of a whole job for each (device type, number of devices) that it may be given."""

    seconds: Mapping[tuple[str, int], float]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise Invalid("a profile is empty; give it the run time for at least one device type and number")
        for (device, count), seconds in self.seconds.items():
            if count < 1 or not (isfinite(seconds) and seconds > 0):
                raise Invalid(f"a profile says {seconds} s on {count} x {device}; both must be positive")

    @cached_property
    def key(self) -> tuple[tuple[str, int, float], ...]:
        """The same for equal profiles."""
        return tuple(sorted((device, count, seconds) for (device, count), seconds in self.seconds.items()))

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RuntimeProfile) and self.key == other.key)


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """Work with a deadline. Each second after it costs `weight`."""

    name: str
    submitted: float
    deadline: float
    weight: float
    profile: RuntimeProfile
    restartable: bool = True
    """May be stopped once it runs, and go on later or elsewhere."""

    def __post_init__(self) -> None:
        causes = [
            Cause(f"jobs[{self.name}].{name}", f"is {value}, and must be a number{rule}")
            for name, value, rule, good in (
                ("submitted", self.submitted, "", isfinite(self.submitted)),
                ("deadline", self.deadline, "", isfinite(self.deadline)),
                ("weight", self.weight, " of at least 0", isfinite(self.weight) and self.weight >= 0),
            )
            if not good
        ]
        if causes:
            raise Invalid("; ".join(f"{cause.field} {cause.message}" for cause in causes), causes=tuple(causes))


@dataclass(frozen=True, slots=True)
class MachineShare:
    """So many devices of one machine."""

    machine: str
    devices: int


@dataclass(frozen=True, slots=True)
class JobState:
    """A job that was submitted and has not ended."""

    job: DeadlineJob
    remaining: float = 1.0
    placement: MachineShare | None = None
    ready: float = -inf
    """When it begins to progress: later than now while its machine starts or its state is restored."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that changes cost."""

    start: float = 0.0
    """A machine is started or given another configuration: its jobs wait this long."""
    restore: float = 0.0
    """A job goes on elsewhere, with another number of devices, or after a stop: it waits this long."""
    stop: float = 0.0
    """A job is stopped or moved: it loses this much of its progress."""

    def __post_init__(self) -> None:
        if not all(isfinite(value) and value >= 0 for value in (self.start, self.restore, self.stop)):
            raise Invalid("the seconds to start, restore and stop must be numbers of at least 0")

    @property
    def free(self) -> bool:
        """Whether changes cost nothing."""
        return not (self.start or self.restore or self.stop)


class CostGoal(StrEnum):
    """What is saved."""

    COST = "cost"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True)
class CostObjective:
    """What a second of a running machine costs; lateness is added to it.

    With `energy`, a machine costs the energy it draws, at `per_kwh`, so that it can be weighed against lateness.
    """

    goal: CostGoal = CostGoal.COST
    per_kwh: float = 0.25

    def rate(self, kind: MachineType) -> float:
        """Cost per second of a running machine."""
        if self.goal is CostGoal.ENERGY:
            return kind.power * self.per_kwh / 3.6e6
        return kind.price / 3600


FREE = Overheads()
CHEAPEST = CostObjective()


@dataclass(frozen=True)
class Snapshot:
    """Everything a decision depends on."""

    now: float
    machines: tuple[str, ...]
    catalogue: tuple[MachineType, ...]
    jobs: tuple[JobState, ...]
    configured: Mapping[str, MachineType] = field(default_factory=dict)
    """The machines that run, and as what."""
    overheads: Overheads = FREE
    objective: CostObjective = CHEAPEST
    gap: float | None = None
    """Expected seconds until the next job arrives, if known."""


@dataclass(frozen=True)
class MachinePlan:
    """Which machines run as what, and which job gets how many devices of which. Who is not named waits."""

    machines: Mapping[str, MachineType] = field(default_factory=dict)
    placements: Mapping[str, MachineShare] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Jobs that can never run as things are, and why."""


def sound(snapshot: Snapshot) -> Snapshot:
    """The snapshot without machines that have disappeared: jobs that ran on them wait, with what they have done."""
    machines = set(snapshot.machines)
    configured = {machine: kind for machine, kind in snapshot.configured.items() if machine in machines}
    lost = [state for state in snapshot.jobs if state.placement and state.placement.machine not in configured]
    if not lost and len(configured) == len(snapshot.configured):
        return snapshot
    jobs = tuple(replace(state, placement=None) if state in lost else state for state in snapshot.jobs)
    return replace(snapshot, configured=configured, jobs=jobs)


def unplaceable(job: DeadlineJob, catalogue: Sequence[MachineType]) -> str:
    """Why no machine of the catalogue can ever run the job."""
    wanted = ", ".join(sorted({device for device, _ in job.profile.seconds}))
    there = ", ".join(sorted({kind.device for kind in catalogue})) or "none"
    return f"no machine can be given what its profile names ({wanted}); device types there are: {there}"
