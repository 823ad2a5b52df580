"""Drafting: jobs in some order, each given the first of its choices that a machine has room for.

This is what the known methods share; the optimiser drafts in the order of pressure (greedy), so that its plan is never
worse than that. A machine is opened in the largest configuration of its device type, so that
others may join; who finds no machine left must fit into an open one. At the end each machine shrinks to the
cheapest configuration that holds its jobs, and devices that stay idle go to the job that they speed up most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .assigning import Load, cheapest_hosts, settle
from .curves import Curve, Option, curve_of
from .models import JobState, MachinePlan, RuntimeProfile, Snapshot


class UnplacedJob:
    """A job to be placed. Its choices: the cheapest that meet the deadline, then the fastest of the others."""

    __slots__ = ("curve", "limit", "pressure", "state")

    def __init__(self, state: JobState, curve: Curve, now: float) -> None:
        self.state, self.curve = state, curve
        left = state.job.deadline - now
        self.pressure = curve.quickest[0].seconds * state.remaining - left
        """Seconds by which the fastest choice misses the deadline; negative if it does not."""
        self.limit = left / state.remaining
        """What meets the deadline would take no longer for the whole job."""

    def choices(self) -> Iterator[Option]:
        """One after the other."""
        yield from (option for option in self.curve.options if option.seconds <= self.limit)
        yield from (option for option in self.curve.quickest if option.seconds > self.limit)


class DraftSeat(NamedTuple):
    """Where a job of a draft sits."""

    choice: Option
    node: int


@dataclass(slots=True)
class Node:
    """An open machine of a draft."""

    device: str
    size: int
    used: int = 0


@dataclass(slots=True)
class Draft:
    """Seats for jobs, by their number."""

    seats: dict[int, DraftSeat] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    idle: int = 0
    """Devices of open nodes that nobody has."""

    def open(self, device: str, size: int) -> int:
        """Another node."""
        self.nodes.append(Node(device, size))
        self.idle += size
        return len(self.nodes) - 1

    def sit(self, job: int, choice: Option, node: int) -> None:
        """Give a job its devices."""
        self.nodes[node].used += choice.devices
        self.idle -= choice.devices
        self.seats[job] = DraftSeat(choice, node)

    def full(self, limit: int) -> bool:
        """Whether no further job can sit anywhere."""
        return not self.idle and len(self.nodes) >= limit


Order = Callable[[UnplacedJob], tuple[float, str]]


def candidates(snapshot: Snapshot) -> list[UnplacedJob]:
    """The jobs of a snapshot that can be placed."""
    curves: dict[RuntimeProfile, Curve | None] = {}
    found = []
    for state in snapshot.jobs:
        profile = state.job.profile
        if profile not in curves:
            curves[profile] = curve_of(profile, snapshot.catalogue, snapshot.objective)
        curve = curves[profile]
        if curve is not None:
            found.append(UnplacedJob(state, curve, snapshot.now))
    return found


def by_pressure(candidate: UnplacedJob) -> tuple[float, str]:
    """Whose deadline is nearest to being missed at the fastest goes first."""
    return -candidate.pressure, candidate.state.job.name


def drafted(order: Order, snapshot: Snapshot) -> tuple[list[UnplacedJob], Draft]:
    """The jobs that can be placed, and their seats."""
    jobs = candidates(snapshot)
    ranking = sorted(range(len(jobs)), key=lambda job: order(jobs[job]))
    return jobs, construct(jobs, ranking, largest(snapshot), len(snapshot.machines))


def construct(jobs: Sequence[UnplacedJob], order: Sequence[int], sizes: dict[str, int], limit: int) -> Draft:
    """Seat the jobs in order, each with the first of its choices that fits, where it leaves the least room."""
    draft = Draft()
    rooms: dict[str, list[list[int]]] = {device: [[] for _ in range(size + 1)] for device, size in sizes.items()}
    for job in order:
        if draft.full(limit):
            break
        for choice in jobs[job].choices():
            room = rooms[choice.device]
            free = next((n for n in range(choice.devices, len(room)) if room[n]), 0)
            if free:
                index = room[free].pop()
            elif len(draft.nodes) < limit:
                free = sizes[choice.device]
                index = draft.open(choice.device, free)
            else:
                continue
            draft.sit(job, choice, index)
            room[free - choice.devices].append(index)
            break
    return draft


def largest(snapshot: Snapshot) -> dict[str, int]:
    """The size of the largest machine of each device type."""
    return {device: len(hosts) - 1 for device, hosts in cheapest_hosts(snapshot.catalogue, snapshot.objective).items()}


def conclude(snapshot: Snapshot, jobs: Sequence[UnplacedJob], draft: Draft) -> MachinePlan:
    """Shrink the machines, hand out idle devices, and settle."""
    hosts = cheapest_hosts(snapshot.catalogue, snapshot.objective)
    given = {job: place.choice.devices for job, place in draft.seats.items()}
    members: list[list[int]] = [[] for _ in draft.nodes]
    for job, place in draft.seats.items():
        members[place.node].append(job)
    loads = []
    for node, group in zip(draft.nodes, members, strict=True):
        if not group:
            continue
        kind = hosts[node.device][node.used]
        if idle := kind.devices - node.used:
            _hand_out(jobs, given, group, kind.device, idle)
        loads.append(Load(kind, {jobs[job].state.job.name: given[job] for job in group}))
    return settle(snapshot, loads)


def _hand_out(jobs: Sequence[UnplacedJob], given: dict[int, int], group: list[int], device: str, idle: int) -> None:
    best, most = None, 0.0
    for job in group:
        state = jobs[job].state
        seconds = state.job.profile.seconds
        more = seconds.get((device, given[job] + idle))
        if more is not None and (gain := (seconds[device, given[job]] - more) * state.remaining) > most:
            best, most = job, gain
    if best is not None:
        given[best] += idle
