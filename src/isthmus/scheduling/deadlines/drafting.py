"""Drafting: jobs in some order, each given the first of its choices that a machine has room for.

This is what the known methods share. A machine is opened in the largest configuration of its device type, so that
others may join; who finds no machine left must fit into an open one. At the end each machine shrinks to the
cheapest configuration that holds its jobs, and devices that stay idle go to the job that they speed up most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .curves import curve_of
from .models import JobState, Plan, Snapshot
from .settling import Load, cheapest_hosts, settle


class Choice(NamedTuple):
    """A number of devices of one type, the seconds to the end of the job, and the rate of a machine for it alone."""

    device: str
    devices: int
    seconds: float
    rate: float


@dataclass(slots=True)
class Candidate:
    """A job to be placed. Its choices: the cheapest that meet the deadline, then the fastest of the others."""

    state: JobState
    choices: list[Choice]
    in_time: int
    """How many of the choices meet the deadline."""
    left: float
    """Seconds to the deadline."""
    pressure: float
    """Seconds by which the fastest choice misses the deadline; negative if it does not."""
    slowest: float

    @property
    def first(self) -> int:
        """How many choices are as good in kind as the first: those in time, or all if none is."""
        return self.in_time or len(self.choices)


class Seat(NamedTuple):
    """Where a job of a draft sits."""

    choice: Choice
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

    seats: dict[int, Seat] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


def candidates(snapshot: Snapshot) -> list[Candidate]:
    """The jobs of a snapshot that can be placed."""
    found = []
    for state in snapshot.jobs:
        curve = curve_of(state.job.profile, snapshot.catalogue, snapshot.objective)
        if curve is None:
            continue
        left = state.job.deadline - snapshot.now
        all_choices = [Choice(o.device, o.devices, o.seconds * state.remaining, o.alone) for o in curve.options]
        in_time = sorted((c for c in all_choices if c.seconds <= left), key=lambda c: c.seconds * c.rate)
        late = sorted((c for c in all_choices if c.seconds > left), key=lambda c: c.seconds)
        times = [c.seconds for c in all_choices]
        found.append(Candidate(state, in_time + late, len(in_time), left, min(times) - left, max(times)))
    return found


Pick = Callable[[Sequence[int]], int]
"""Which of the nodes with room, sorted by the room they would have left."""


def seat(draft: Draft, job: int, choice: Choice, sizes: dict[str, int], limit: int, pick: Pick | None = None) -> bool:
    """Put a job on an open node with the least room to spare, or on a new one; False if there is neither."""
    best, least = -1, 1 << 30
    if pick is None:
        for index, node in enumerate(draft.nodes):
            spare = node.size - node.used - choice.devices
            if node.device == choice.device and 0 <= spare < least:
                best, least = index, spare
    else:
        fitting = [
            (node.size - node.used, index)
            for index, node in enumerate(draft.nodes)
            if node.device == choice.device and node.size - node.used >= choice.devices
        ]
        if fitting:
            fitting.sort()
            best = fitting[pick(range(len(fitting)))][1]
    if best < 0:
        if len(draft.nodes) >= limit:
            return False
        best = len(draft.nodes)
        draft.nodes.append(Node(choice.device, sizes[choice.device]))
    draft.nodes[best].used += choice.devices
    draft.seats[job] = Seat(choice, best)
    return True


def construct(jobs: Sequence[Candidate], order: Sequence[int], sizes: dict[str, int], limit: int) -> Draft:
    """Seat the jobs in order, each with the first of its choices that fits."""
    draft = Draft()
    for job in order:
        for choice in jobs[job].choices:
            if seat(draft, job, choice, sizes, limit):
                break
    return draft


def largest(snapshot: Snapshot) -> dict[str, int]:
    """The size of the largest machine of each device type."""
    return {device: len(hosts) - 1 for device, hosts in cheapest_hosts(snapshot.catalogue, snapshot.objective).items()}


def conclude(snapshot: Snapshot, jobs: Sequence[Candidate], draft: Draft) -> Plan:
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


def _hand_out(jobs: Sequence[Candidate], given: dict[int, int], group: list[int], device: str, idle: int) -> None:
    best, most = None, 0.0
    for job in group:
        state = jobs[job].state
        seconds = state.job.profile.seconds
        more = seconds.get((device, given[job] + idle))
        if more is not None and (gain := (seconds[device, given[job]] - more) * state.remaining) > most:
            best, most = job, gain
    if best is not None:
        given[best] += idle
