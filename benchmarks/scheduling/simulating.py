"""Simulating: a method decides at each arrival and each end, and what that costs is added up.

Between two events nothing changes. Every running machine is paid in full; a machine without jobs is off. A job
progresses from the moment its machine has started and its state is restored. Time is an argument: the simulator
knows the events, never a clock, except the one it is handed to measure decisions with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.curves import curve_of
from isthmus.scheduling.deadlines.models import (
    CHEAPEST,
    FREE,
    CostObjective,
    DeadlineJob,
    JobState,
    MachinePlan,
    MachineType,
    Overheads,
    Snapshot,
    sound,
    unplaceable,
)

from .bounding import lower_bound

Method = Callable[[Snapshot], MachinePlan]

_DONE = 1e-9
_RECENT = 32
"""Over so many arrivals the expected gap is the mean."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Jobs to come, on so many machines that can be given the configurations of a catalogue."""

    jobs: tuple[DeadlineJob, ...]
    machines: tuple[str, ...]
    catalogue: tuple[MachineType, ...]
    overheads: Overheads = FREE
    objective: CostObjective = CHEAPEST

    @property
    def bound(self) -> float:
        """What the jobs cost at least."""
        return lower_bound(self.jobs, self.catalogue, self.objective)


@dataclass(frozen=True, slots=True)
class Stint:
    """A job on devices of one machine, unchanged from start to end."""

    job: str
    machine: str
    kind: str
    devices: int
    start: float
    end: float


@dataclass(slots=True)
class Outcome:
    """What a method made of an instance."""

    machine_cost: float = 0.0
    lateness_cost: float = 0.0
    lateness: float = 0.0
    late_jobs: int = 0
    reconfigurations: int = 0
    decisions: int = 0
    seconds: float = 0.0
    """Spent on deciding, by the clock that was handed in."""
    longest: float = 0.0
    end: float = 0.0
    stints: list[Stint] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    timings: list[tuple[int, float]] = field(default_factory=list)
    """For each decision: how many jobs there were, and the seconds it took."""

    @property
    def cost(self) -> float:
        """Machines and lateness."""
        return self.machine_cost + self.lateness_cost


def simulate(instance: Instance, method: Method, clock: Callable[[], float] = lambda: 0.0) -> Outcome:
    """Run all jobs to their end."""
    return _Simulation(instance, method, clock).run()


class _Simulation:
    def __init__(self, instance: Instance, method: Method, clock: Callable[[], float]) -> None:
        names = {job.name for job in instance.jobs}
        if len(names) != len(instance.jobs):
            raise Invalid("two jobs have the same name; give each its own")
        if not instance.machines:
            raise Invalid("there are no machines; name at least one")
        self._instance, self._method, self._clock = instance, method, clock
        self._arrivals = deque(sorted(instance.jobs, key=lambda job: (job.submitted, job.name)))
        self._active: dict[str, JobState] = {}
        self._configured: dict[str, MachineType] = {}
        self._rates = {kind: instance.objective.rate(kind) for kind in instance.catalogue}
        self._since: dict[str, float] = {}
        self._gaps: deque[float] = deque(maxlen=_RECENT)
        self._latest: float | None = None
        self._outcome = Outcome()
        self._now = 0.0

    def run(self) -> Outcome:
        while self._arrivals or self._active:
            soonest = min((self._end_of(state) for state in self._active.values()), default=inf)
            then = min(self._arrivals[0].submitted if self._arrivals else inf, soonest)
            if then == inf:
                waiting = ", ".join(sorted(self._active)[:5])
                raise Invalid(f"the method leaves {waiting} waiting on idle machines; nothing would ever happen again")
            self._advance(then)
            self._admit()
            if self._active:
                self._decide()
        self._outcome.end = self._now
        return self._outcome

    def _seconds(self, state: JobState) -> float:
        """Of the whole job, as it is placed."""
        assert state.placement is not None
        kind = self._configured[state.placement.machine]
        return state.job.profile.seconds[kind.device, state.placement.devices]

    def _end_of(self, state: JobState) -> float:
        if state.placement is None:
            return inf
        return max(self._now, state.ready) + state.remaining * self._seconds(state)

    def _advance(self, then: float) -> None:
        elapsed = then - self._now
        self._outcome.machine_cost += elapsed * sum(self._rates[kind] for kind in self._configured.values())
        for name, state in list(self._active.items()):
            if state.placement is None:
                continue
            worked = max(0.0, then - max(self._now, state.ready))
            left = state.remaining - worked / self._seconds(state)
            if left > _DONE:
                self._active[name] = replace(state, remaining=left)
            else:
                self._finish(name, state, then)
        self._now = then

    def _finish(self, name: str, state: JobState, then: float) -> None:
        late = max(0.0, then - state.job.deadline)
        self._outcome.lateness += late
        self._outcome.lateness_cost += late * state.job.weight
        self._outcome.late_jobs += late > 0
        self._close_stint(name, state, then)
        del self._active[name]
        assert state.placement is not None
        if not any(s.placement and s.placement.machine == state.placement.machine for s in self._active.values()):
            del self._configured[state.placement.machine]

    def _admit(self) -> None:
        while self._arrivals and self._arrivals[0].submitted <= self._now:
            job = self._arrivals.popleft()
            if self._latest is not None:
                self._gaps.append(job.submitted - self._latest)
            self._latest = job.submitted
            if curve_of(job.profile, self._instance.catalogue, self._instance.objective) is None:
                self._outcome.rejected[job.name] = unplaceable(job, self._instance.catalogue)
            else:
                self._active[job.name] = JobState(job)

    def _expected_gap(self) -> float | None:
        """Until the next arrival: the recent mean, or as long as nobody has come, whichever is longer."""
        if not self._gaps or self._latest is None:
            return None
        return max(sum(self._gaps) / len(self._gaps), self._now - self._latest)

    def _decide(self) -> None:
        snapshot = Snapshot(
            now=self._now,
            machines=self._instance.machines,
            catalogue=self._instance.catalogue,
            jobs=tuple(self._active.values()),
            configured=dict(self._configured),
            overheads=self._instance.overheads,
            objective=self._instance.objective,
            gap=self._expected_gap(),
        )
        begun = self._clock()
        plan = self._method(snapshot)
        taken = self._clock() - begun
        check_plan(snapshot, plan)
        outcome = self._outcome
        outcome.decisions += 1
        outcome.seconds += taken
        outcome.longest = max(outcome.longest, taken)
        outcome.timings.append((len(snapshot.jobs), taken))
        self._apply(plan)

    def _apply(self, plan: MachinePlan) -> None:
        overheads = self._instance.overheads
        used = {placement.machine for placement in plan.placements.values()}
        running = {name: kind for name, kind in plan.machines.items() if name in used}
        started = {name for name, kind in running.items() if self._configured.get(name) != kind}
        for name, state in list(self._active.items()):
            target = plan.placements.get(name)
            if target == state.placement and (target is None or target.machine not in started):
                continue
            remaining, wait = state.remaining, 0.0
            if state.placement is not None:
                self._outcome.reconfigurations += 1
                remaining = min(1.0, remaining + overheads.stop / self._seconds(state))
                self._close_stint(name, state, self._now)
            if target is not None:
                wait = overheads.start if target.machine in started else 0.0
                wait += overheads.restore if state.remaining < 1.0 else 0.0
                self._since[name] = self._now
            self._active[name] = replace(state, remaining=remaining, placement=target, ready=self._now + wait)
        self._outcome.reconfigurations += len(started)
        self._configured = running

    def _close_stint(self, name: str, state: JobState, then: float) -> None:
        assert state.placement is not None
        kind = self._configured[state.placement.machine]
        self._outcome.stints.append(
            Stint(name, state.placement.machine, kind.name, state.placement.devices, self._since[name], then)
        )


def check_plan(snapshot: Snapshot, plan: MachinePlan) -> None:
    """Refuse a plan that gives a device twice, a job what it has no profile for, or a machine that is not there."""
    snapshot = sound(snapshot)
    used: dict[str, int] = {}
    states = {state.job.name: state for state in snapshot.jobs}
    for name, placement in plan.placements.items():
        kind = plan.machines.get(placement.machine)
        if kind is None:
            raise Invalid(f"the plan puts {name} on {placement.machine}, which it does not run")
        if name not in states:
            raise Invalid(f"the plan places {name}, which is not among the jobs")
        if (kind.device, placement.devices) not in states[name].job.profile.seconds:
            raise Invalid(f"the plan gives {name} {placement.devices} x {kind.device}, for which it has no profile")
        used[placement.machine] = used.get(placement.machine, 0) + placement.devices
    for machine, kind in plan.machines.items():
        if machine not in snapshot.machines:
            raise Invalid(f"the plan runs {machine}, which is not among the machines")
        if used.get(machine, 0) > kind.devices:
            raise Invalid(f"the plan uses {used[machine]} devices of {machine}, which has {kind.devices}")
    for state in snapshot.jobs:
        if state.placement and not state.job.restartable and plan.placements.get(state.job.name) != state.placement:
            raise Invalid(f"the plan stops or moves {state.job.name}, which cannot be restarted")
