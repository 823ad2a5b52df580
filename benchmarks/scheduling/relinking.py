"""Relinking: the randomised greedy method, and path relinking between its best drafts.

Both are known from the literature on scheduling trainings in the cloud and are here to be compared with. Many
drafts are made in an order and with choices that chance varies a little. `random_greedy` takes the one that costs
least until the first job ends, where a job that waits counts with a hundred times its worst lateness.
`path_relinking` keeps an elite of drafts by another measure (the work done per cost), walks from the best of them
towards each other one, job by job, the best step first, and keeps what it finds on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from isthmus.scheduling.deadlines.assigning import cheapest_hosts
from isthmus.scheduling.deadlines.curves import Option
from isthmus.scheduling.deadlines.drafting import (
    Draft,
    DraftSeat,
    Node,
    UnplacedJob,
    by_pressure,
    candidates,
    conclude,
    construct,
    largest,
)
from isthmus.scheduling.deadlines.models import MachinePlan, MachineType, Snapshot

ITERATIONS = 100
ELITE = 10
_WAITING = 100.0
_SWAP = 0.05
_NODES = 0.2
_EPSILON = 1e-12


class _Job:
    """A candidate, with what drafts ask for again and again."""

    __slots__ = ("left", "pools", "remaining", "slowest", "weight")

    def __init__(self, candidate: UnplacedJob, now: float) -> None:
        state, curve, limit = candidate.state, candidate.curve, candidate.limit
        self.remaining, self.weight = state.remaining, state.job.weight
        self.left = state.job.deadline - now
        """Seconds to the deadline."""
        self.slowest = curve.quickest[-1].seconds * state.remaining
        in_time = [option for option in curve.options if option.seconds <= limit]
        self.pools = in_time, [option for option in curve.quickest if option.seconds > limit]
        """The choices that meet the deadline, and the others."""

    def seconds(self, choice: Option) -> float:
        """To the end of the job."""
        return choice.seconds * self.remaining


@dataclass(frozen=True, slots=True)
class _Desk:
    """What all drafts of one decision share."""

    snapshot: Snapshot
    candidates: Sequence[UnplacedJob]
    jobs: Sequence[_Job]
    order: Sequence[int]
    sizes: dict[str, int]
    limit: int
    rates: dict[str, list[float]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Desk:
        found = candidates(snapshot)
        jobs = [_Job(candidate, snapshot.now) for candidate in found]
        order = sorted(range(len(found)), key=lambda job: by_pressure(found[job]))
        hosts = cheapest_hosts(snapshot.catalogue, snapshot.objective)
        rates = {device: [_rate(snapshot, kind) for kind in kinds] for device, kinds in hosts.items()}
        return cls(snapshot, found, jobs, order, largest(snapshot), len(snapshot.machines), rates)

    def greedy(self) -> Draft:
        return construct(self.candidates, self.order, self.sizes, self.limit)

    def cost(self, draft: Draft) -> float:
        """Until the first job ends."""
        first = min((self.jobs[job].seconds(place.choice) for job, place in draft.seats.items()), default=0.0)
        total = first * sum(self.rates[node.device][node.used] for node in draft.nodes if node.used)
        for index, job in enumerate(self.jobs):
            if index in draft.seats:
                total += job.weight * max(0.0, first - job.left)
            else:
                total += _WAITING * job.weight * max(0.0, job.slowest - job.left)
        return total

    def worth(self, draft: Draft) -> float:
        """Work done per cost, over all jobs that run."""
        return sum(self.worth_of(draft, job, place) for job, place in draft.seats.items())

    def worth_of(self, draft: Draft, job: int, place: DraftSeat) -> float:
        """The same of one job."""
        node, choice, candidate = draft.nodes[place.node], place.choice, self.jobs[job]
        share = self.rates[node.device][node.used] * choice.devices / node.used
        seconds = candidate.seconds(choice)
        late = max(0.0, seconds - candidate.left) * candidate.weight
        return candidate.slowest / (seconds * share + late + _EPSILON)


def random_greedy(snapshot: Snapshot, *, seed: int = 0, iterations: int = ITERATIONS) -> MachinePlan:
    """The cheapest of many randomised drafts."""
    desk = _Desk.of(snapshot)
    random = Random(f"{seed}/{snapshot.now}")
    best = desk.greedy()
    least = desk.cost(best)
    for _ in range(iterations):
        draft = _draw(desk, random, 0.05)
        if (cost := desk.cost(draft)) < least:
            best, least = draft, cost
    return conclude(snapshot, desk.candidates, best)


def path_relinking(snapshot: Snapshot, *, seed: int = 0, iterations: int = ITERATIONS) -> MachinePlan:
    """The best draft on the paths between the best of many randomised ones."""
    desk = _Desk.of(snapshot)
    random = Random(f"{seed}/{snapshot.now}")
    first = desk.greedy()
    elite = [(desk.worth(first), 0, first)]
    for number in range(1, iterations + 1):
        draft = _draw(desk, random, 0.3)
        _admit(elite, desk.worth(draft), number, draft)
    for _, number, guide in tuple(elite):
        found = _walk(desk, elite[0][2], guide)
        if found is not None:
            _admit(elite, desk.worth(found), iterations + 1 + number, found)
    return conclude(snapshot, desk.candidates, elite[0][2])


def _rate(snapshot: Snapshot, kind: MachineType) -> float:
    return snapshot.objective.rate(kind)


def _admit(elite: list[tuple[float, int, Draft]], worth: float, number: int, draft: Draft) -> None:
    """Into the elite, the best first, if it is among the best and new."""
    if len(elite) >= ELITE and worth <= elite[-1][0]:
        return
    if any(abs(worth - other) <= _EPSILON * abs(worth) for other, _, _ in elite):
        return
    elite.append((worth, number, draft))
    elite.sort(key=lambda entry: (-entry[0], entry[1]))
    del elite[ELITE:]


def _draw(desk: _Desk, random: Random, spread: float) -> Draft:
    """A draft in an order and with choices that chance varies: `spread` is the part of them it chooses from."""
    order = list(desk.order)
    for index in range(len(order) - 1):
        here, there = desk.jobs[order[index]].weight, desk.jobs[order[index + 1]].weight
        if random.random() < (0.5 + _SWAP if here < there else 0.5 - _SWAP):
            order[index], order[index + 1] = order[index + 1], order[index]
    draft = Draft()
    for job in order:
        if draft.full(desk.limit):
            break
        for choices in desk.jobs[job].pools:
            pool = choices.copy()
            while pool and job not in draft.seats:
                _seat(desk, draft, job, pool.pop(int(random.random() * max(1, round(spread * len(pool))))), random)
            if job in draft.seats:
                break
    return draft


def _seat(desk: _Desk, draft: Draft, job: int, choice: Option, random: Random) -> None:
    """On one of the open nodes that it fills best, or on a new one, if there is either."""
    fitting = [
        (node.size - node.used, index)
        for index, node in enumerate(draft.nodes)
        if node.device == choice.device and node.size - node.used >= choice.devices
    ]
    if fitting:
        fitting.sort()
        index = fitting[int(random.random() * max(1, round(_NODES * len(fitting))))][1]
    elif len(draft.nodes) < desk.limit:
        index = draft.open(choice.device, desk.sizes[choice.device])
    else:
        return
    draft.sit(job, choice, index)


def _copy(draft: Draft) -> Draft:
    return Draft(dict(draft.seats), [replace(node) for node in draft.nodes])


def _walk(desk: _Desk, start: Draft, guide: Draft) -> Draft | None:
    """From one draft towards another; the best draft on the way, if better than the start."""
    if start is guide:
        return None
    here = _copy(start)
    known: dict[tuple[int, int], float] = {}
    gained, most, best = 0.0, 0.0, None
    for _ in range(desk.limit):
        moves = _moves(desk, here, guide)
        if not moves:
            break
        for move in moves:
            if move not in known:
                known[move] = _try(desk, here, guide, move)
        step = max(moves, key=lambda move: (known[move], move))
        gained += _try(desk, here, guide, step, keep=True)
        if gained > most:
            most, best = gained, _copy(here)
    return best


def _moves(desk: _Desk, here: Draft, guide: Draft) -> list[tuple[int, int]]:
    """Jobs that sit differently in the guide, and the node where they could sit so here; -1 to wait."""
    found = []
    for job in range(len(desk.jobs)):
        mine, theirs = here.seats.get(job), guide.seats.get(job)
        if theirs is None:
            if mine is not None:
                found.append((job, -1))
        elif mine is None or mine.choice != theirs.choice:
            node = _node_for(desk, here, mine, theirs.choice)
            if node is not None:
                found.append((job, node))
    return found


def _node_for(desk: _Desk, here: Draft, mine: DraftSeat | None, choice: Option) -> int | None:
    """A node that can take the choice, best the one the job is on."""
    if mine is not None:
        node = here.nodes[mine.node]
        if node.used == mine.choice.devices:
            return mine.node
        if node.device == choice.device and node.size - node.used + mine.choice.devices >= choice.devices:
            return mine.node
    closed = None
    for index, node in enumerate(here.nodes):
        if not node.used:
            closed = index if closed is None else closed
        elif node.device == choice.device and node.size - node.used >= choice.devices:
            return index
    if closed is None and len(here.nodes) < desk.limit:
        return len(here.nodes)
    return closed


def _try(desk: _Desk, here: Draft, guide: Draft, move: tuple[int, int], keep: bool = False) -> float:
    """What a move gains, by the job that moves; it is undone unless kept."""
    job, target = move
    mine = here.seats.get(job)
    before = None
    gain = 0.0
    if mine is not None:
        gain -= desk.worth_of(here, job, mine)
        before = replace(here.nodes[mine.node])
        here.nodes[mine.node].used -= mine.choice.devices
        del here.seats[job]
    opened = target == len(here.nodes)
    if opened:
        here.nodes.append(Node("", 0))
    there = replace(here.nodes[target]) if target >= 0 else None
    if target >= 0:
        choice = guide.seats[job].choice
        node = here.nodes[target]
        if not node.used:
            node.device, node.size = choice.device, desk.sizes[choice.device]
        node.used += choice.devices
        here.seats[job] = DraftSeat(choice, target)
        gain += desk.worth_of(here, job, here.seats[job])
    if not keep:
        here.seats.pop(job, None)
        if there is not None:
            here.nodes[target] = there
        if opened:
            here.nodes.pop()
        if mine is not None and before is not None:
            here.nodes[mine.node] = before
            here.seats[job] = mine
    return gain
