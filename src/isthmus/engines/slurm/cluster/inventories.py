"""From what Slurm says of its nodes and partitions to an inventory. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from isthmus._kit.durations import format_duration
from isthmus.engines.base import Inventory, RunState
from isthmus.engines.slurm.facts import SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.resources.sites import Capacity, SiteNode, SiteQueue

from .partitions import has
from .waits import estimate

TRANSPORTS = {"Command": "command line on this machine", "SSH": "command line over SSH", "REST": "slurmrestd"}


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What Slurm said."""

    now: datetime
    facts: SiteFacts
    nodes: Sequence[SlurmNode] = ()
    partitions: Sequence[SlurmPartition] = ()
    jobs: Sequence[SlurmJob] = ()
    gres: Mapping[str, str] = field(default_factory=dict)
    """Device classes and what Slurm calls them."""


def inventory(seen: ClusterFacts, *, transport: str, budget: str) -> Inventory:
    """What the cluster offers. Nodes that are down or drained are shown, and do not count."""
    # Slurm remembers thousands of jobs that are over; they are passed over once.
    seen = replace(seen, jobs=[job for job in seen.jobs if job.meaning.state in (RunState.QUEUED, RunState.RUNNING)])
    usable = [node for node in seen.nodes if node.usable]
    devices = {name: sum(has(node, gres) for node in usable) for name, gres in seen.gres.items()}
    waiting, running = Counter[str](), Counter[str]()
    for job in seen.jobs:
        for name in job.partition.split(","):
            waiting[name] += job.meaning.state is RunState.QUEUED
            running[name] += job.meaning.state is RunState.RUNNING
    return Inventory(
        version=f"Slurm {seen.facts.version}",
        capacity=Capacity(
            cpus=sum(node.cpus for node in usable),
            memory_bytes=sum(node.memory_bytes for node in usable),
            devices={name: count for name, count in devices.items() if count},
        ),
        others=Capacity(cpus=_taken_by_others(seen)),
        nodes=tuple(_node(node, seen.gres) for node in seen.nodes),
        queues=tuple(
            _queue(partition, seen, waiting[partition.name], running[partition.name]) for partition in seen.partitions
        ),
        features={
            "transport": TRANSPORTS.get(transport, transport),
            "accounting": "slurmdbd" if seen.facts.accounting else "none: the jobs' own records are used",
            "energy": "measured by Slurm" if seen.facts.measures_energy else "estimated from power models",
            "budget": budget,
        },
    )


def _taken_by_others(seen: ClusterFacts) -> int:
    """Cpus that jobs of others run on."""
    running = (job for job in seen.jobs if job.meaning.state is RunState.RUNNING)
    return sum(job.cpus for job in running if job.run_id is None)


def _queue(partition: SlurmPartition, seen: ClusterFacts, waiting: int, running: int) -> SiteQueue:
    wait = estimate(partition, seen.nodes, seen.jobs, seen.now)
    return SiteQueue(
        name=partition.name,
        state=partition.state.capitalize(),
        default=partition.default,
        max_time=None if partition.max_seconds is None else format_duration(partition.max_seconds),
        nodes=partition.nodes,
        pending=waiting,
        running=running,
        shortest_wait=None if wait is None else format_duration(wait.shortest),
        longest_wait=None if wait is None or wait.longest is None else format_duration(wait.longest),
    )


def _node(node: SlurmNode, gres: Mapping[str, str]) -> SiteNode:
    return SiteNode(
        name=node.name,
        state=node_state(node),
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        devices={name: count for name, word in gres.items() if (count := has(node, word))},
        features=list(node.features),
        states=sorted(node.states),
        queues=list(node.partitions),
        engine_resources=dict(node.gres),
    )


def node_state(node: SlurmNode) -> str:
    """One word for people: what matters most of the words that Slurm has for a node."""
    states = node.states
    if states & {"DOWN", "NOT_RESPONDING", "FAIL", "INVAL", "INVALID_REG", "UNKNOWN"}:
        return "Down"
    if "DRAIN" in states:
        busy = states & {"ALLOCATED", "MIXED", "COMPLETING"}
        return "Draining" if busy else "Drained"
    if states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"}:
        return "PoweredDown" if "POWERED_DOWN" in states else "Powering"
    if states & {"ALLOCATED", "MIXED", "COMPLETING"}:
        return "Busy"
    return "Ready"
