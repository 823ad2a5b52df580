"""Small catalogues, jobs and snapshots, by hand and by chance."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from isthmus.scheduling.deadlines.drafting import UnplacedJob, conclude, drafted
from isthmus.scheduling.deadlines.models import (
    CostObjective,
    DeadlineJob,
    JobState,
    MachineType,
    Overheads,
    RuntimeProfile,
    Snapshot,
)

ONE = MachineType("one", "a", 1, 1.0, 100)
TWO = MachineType("two", "a", 2, 2.0, 180)
FOUR = MachineType("four", "a", 4, 4.0, 320)
CATALOGUE = (ONE, TWO, FOUR)
HOUR = 3600.0


def profile(**hours: float) -> RuntimeProfile:
    """`a1=4, a2=3`: four hours on one device of type a, three on two."""
    return RuntimeProfile({(name[0], int(name[1:])): value * HOUR for name, value in hours.items()})


def job(name: str, deadline: float, weight: float = 0.01, submitted: float = 0.0, **hours: float) -> DeadlineJob:
    """A job with a deadline in hours."""
    return DeadlineJob(
        name, submitted * HOUR, deadline * HOUR, weight, profile(**(hours or {"a1": 4, "a2": 3, "a4": 2}))
    )


def snapshot(*jobs: DeadlineJob, machines: int = 2, **rest: object) -> Snapshot:
    """Jobs that wait, at time 0."""
    names = tuple(f"n{i}" for i in range(machines))
    return Snapshot(0.0, names, CATALOGUE, tuple(JobState(j) for j in jobs), **rest)  # type: ignore[arg-type]


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[MachineType, ...]:
    """One or two device types, in one to three sizes each."""
    kinds = []
    for device in draw(st.sampled_from(["a", "ab"])):
        each = draw(st.floats(0.1, 5))
        for size in sorted(draw(st.sets(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3))):
            price = each * size * draw(st.floats(0.8, 1.2))
            kinds.append(MachineType(f"{device}{size}", device, size, price, 50 + 100 * size))
    return tuple(kinds)


@st.composite
def profiles(draw: st.DrawFn, catalogue: tuple[MachineType, ...]) -> RuntimeProfile:
    """Run times for some of what the catalogue offers, and at times for what it does not."""
    seconds = {}
    for kind in catalogue:
        whole = draw(st.floats(60, 1e5))
        for count in range(1, kind.devices + 1):
            if draw(st.integers(0, 3)):
                seconds[kind.device, count] = whole * draw(st.floats(0.2, 1.1)) / count**0.7
    if not seconds or draw(st.integers(0, 9)) == 0:
        seconds["z", 1] = 100.0
    return RuntimeProfile(seconds)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Up to seven jobs, some of which run, on one to four machines."""
    catalogue = draw(catalogues())
    states = []
    for number in range(draw(st.integers(1, 7))):
        made = DeadlineJob(
            f"j{number}",
            draw(st.floats(-1e5, 0)),
            draw(st.floats(-1e4, 3e5)),
            draw(st.floats(0, 0.02)),
            draw(profiles(catalogue)),
            draw(st.integers(0, 5)) > 0,
        )
        states.append(JobState(made, draw(st.floats(0.001, 1.0))))
    machines = tuple(f"n{i}" for i in range(draw(st.integers(1, 4))))
    overheads = draw(st.sampled_from([Overheads(), Overheads(60, 30, 0), Overheads(600, 300, 100)]))
    gap = draw(st.none() | st.floats(1, 1e5))
    found = Snapshot(0.0, machines, catalogue, tuple(states), {}, overheads, CostObjective(), gap)
    return running(found) if draw(st.booleans()) else found


def running(waiting: Snapshot) -> Snapshot:
    """The snapshot after some of its jobs were placed."""
    plan = conclude(waiting, *drafted(_by_arrival, waiting))
    states = tuple(
        JobState(state.job, state.remaining, plan.placements.get(state.job.name), 10.0 if index % 3 == 0 else 0.0)
        for index, state in enumerate(waiting.jobs)
    )
    used = {place.machine for place in plan.placements.values()}
    configured = {machine: kind for machine, kind in plan.machines.items() if machine in used}
    return Snapshot(
        0.0, waiting.machines, waiting.catalogue, states, configured, waiting.overheads, waiting.objective, waiting.gap
    )


def _by_arrival(candidate: UnplacedJob) -> tuple[float, str]:
    return candidate.state.job.submitted, candidate.state.job.name


def restartable(snapshot: Snapshot) -> Snapshot:
    """The same with jobs that may all be stopped, as the known methods assume."""
    jobs = tuple(replace(s, job=replace(s.job, restartable=True)) for s in snapshot.jobs)
    return replace(snapshot, jobs=jobs)
