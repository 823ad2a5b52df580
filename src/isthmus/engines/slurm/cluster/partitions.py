"""Which partitions a run may wait in: those whose limits it keeps and that its account may use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus._kit.durations import format_duration
from isthmus.engines.base import Run
from isthmus.engines.slurm.batch.submissions import node_counts
from isthmus.engines.slurm.facts import SlurmNode, SlurmPartition
from isthmus.errors import EngineRefused
from isthmus.resources.work.engine_options import SlurmOptions


@dataclass(frozen=True, slots=True)
class Submitter:
    """As whom a run is submitted, as far as partitions ask."""

    account: str = ""
    """Empty: whatever Slurm takes."""
    qos: str = ""
    groups: frozenset[str] | None = None
    """None: not known, so that Slurm has to say."""


def choose(
    run: Run,
    partitions: Sequence[SlurmPartition],
    nodes: Sequence[SlurmNode],
    *,
    allowed: Sequence[str] = (),
    gres: Sequence[str] = (),
    access: Submitter = Submitter(),  # noqa: B008 - frozen
) -> tuple[str, ...]:
    """The partitions to name; none at all where Slurm's own default will do. Raises EngineRefused with every reason."""
    options = run.section(SlurmOptions)
    if options.partition:
        named = options.partition.split(",")
        if allowed and (barred := [name for name in named if name not in allowed]):
            raise EngineRefused(f"Partition {', '.join(barred)} is not open to Isthmus here; use {', '.join(allowed)}.")
        return tuple(named)
    if not partitions:
        return tuple(allowed)
    by_name = {partition.name: partition for partition in partitions}
    default = next((p.name for p in partitions if p.default), None)
    order = [name for name in allowed if name in by_name] if allowed else sorted(by_name, key=lambda n: n != default)
    if default is None and not allowed:
        # slurmrestd up to v0.0.44 does not report which is Slurm's default; most often it is the largest.
        order.sort(key=lambda name: -by_name[name].nodes)
    reasons = {name: unfit(run, by_name[name], nodes, gres=gres, access=access) for name in order}
    fitting = [name for name, reason in reasons.items() if reason is None]
    if not fitting:
        reported = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "none of those allowed exists"
        raise EngineRefused(f"No partition of this cluster takes the job. {reported}.")
    if not allowed and (fitting[0] == default or (default is None and len(fitting) == len(order))):
        return ()
    return (fitting[0],)  # not all of them: those for special nodes would fill up with ordinary jobs


def unfit(
    run: Run, partition: SlurmPartition, nodes: Sequence[SlurmNode], *, gres: Sequence[str], access: Submitter
) -> str | None:
    """Why a partition can not take the run; None if it can."""
    if partition.state.upper() in ("DRAIN", "INACTIVE"):  # one that is down still takes jobs, and starts them later
        return f"it is closed ({partition.state.lower()})"
    if partition.max_seconds is not None and run.time_limit is not None and run.time_limit > partition.max_seconds:
        return f"jobs may take {format_duration(partition.max_seconds)} there"
    if run.nodes < partition.min_nodes:
        return f"jobs must have {partition.min_nodes} nodes there"
    if partition.max_nodes is not None and run.nodes > partition.max_nodes:
        return f"jobs may have {partition.max_nodes} nodes there"
    options = run.section(SlurmOptions)
    most = node_counts(run.nodes, options)[1]
    per_node = run.memory_bytes // (run.nodes if options.memory_per_node else most)
    if partition.max_memory_per_node is not None and per_node > partition.max_memory_per_node:
        return f"jobs may have {partition.max_memory_per_node >> 20} MiB of memory on a node there"
    if barred := _barred(partition, access):
        return barred
    inside = [node for node in nodes if partition.name in node.partitions]
    for wanted in gres:
        name, _, count = wanted.rpartition(":")
        if inside and not any(has(node, name) >= int(count) for node in inside):
            return f"none of its nodes has {wanted}"
    if inside and len(inside) < run.nodes:
        return f"it has {len(inside)} nodes"
    return None


def _barred(partition: SlurmPartition, access: Submitter) -> str | None:
    """Why a person may not use a partition."""
    account, qos, groups = access.account, access.qos, access.groups
    if account and partition.allow_accounts is not None and account not in partition.allow_accounts:
        return f"account {account} may not use it"
    if account and account in partition.deny_accounts:
        return f"account {account} may not use it"
    if qos and partition.allow_qos is not None and qos not in partition.allow_qos:
        return f"QOS {qos} may not use it"
    if qos and qos in partition.deny_qos:
        return f"QOS {qos} may not use it"
    if groups is not None and partition.allow_groups is not None and not groups & set(partition.allow_groups):
        return f"it is for members of {', '.join(partition.allow_groups)}"
    return None


def has(node: SlurmNode, gres: str) -> int:
    """How many units of a generic resource a node has; a name without a type means any type."""
    return sum(count for name, count in node.gres if name == gres or name.startswith(f"{gres}:"))
