"""Ordering: first come, earliest deadline, or highest weight first.

In the form of the literature each job has a machine to itself and keeps it to its end; the configuration is the
cheapest that meets the deadline, else the fastest. In the sharing form all jobs are placed anew at each decision,
beside each other where there is room. `greedy` is the sharing form in the order of pressure.
"""

from __future__ import annotations

from isthmus.scheduling.deadlines.assigning import Load, cheapest_hosts, settle
from isthmus.scheduling.deadlines.drafting import Order, UnplacedJob, by_pressure, candidates, conclude, drafted
from isthmus.scheduling.deadlines.models import MachinePlan, Snapshot


def by_arrival(candidate: UnplacedJob) -> tuple[float, str]:
    """First come, first served."""
    return candidate.state.job.submitted, candidate.state.job.name


def by_deadline(candidate: UnplacedJob) -> tuple[float, str]:
    """Earliest deadline first."""
    return candidate.state.job.deadline, candidate.state.job.name


def by_weight(candidate: UnplacedJob) -> tuple[float, str]:
    """Who pays most for being late goes first."""
    return -candidate.state.job.weight, candidate.state.job.name


def shared(order: Order, snapshot: Snapshot) -> MachinePlan:
    """All jobs anew, in order, sharing machines."""
    return conclude(snapshot, *drafted(order, snapshot))


def unshared(order: Order, snapshot: Snapshot) -> MachinePlan:
    """Whoever runs goes on; the others get free machines in order, one each."""
    running = {
        state.job.name: Load(snapshot.configured[state.placement.machine], {state.job.name: state.placement.devices})
        for state in snapshot.jobs
        if state.placement
    }
    loads = list(running.values())
    hosts = cheapest_hosts(snapshot.catalogue, snapshot.objective)
    for candidate in sorted(candidates(snapshot), key=order):
        if len(loads) >= len(snapshot.machines):
            break
        name = candidate.state.job.name
        if name not in running:
            choice = next(candidate.choices())
            loads.append(Load(hosts[choice.device][choice.devices], {name: choice.devices}))
    return settle(snapshot, loads)


def greedy(snapshot: Snapshot) -> MachinePlan:
    """By pressure, each with the cheapest configuration that meets its deadline, else the fastest."""
    return shared(by_pressure, snapshot)
