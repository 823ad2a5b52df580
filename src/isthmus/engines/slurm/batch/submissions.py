"""From a run to a submission: everything Slurm is sent, and how sbatch is given it. Pure.

Every text that a person chose is checked against a narrow pattern before it goes into a command line, although no shell
of ours ever reads it: Slurm's own plugins and the site's scripts may.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from isthmus.engines.base import Run
from isthmus.engines.batch_scripts import NAME
from isthmus.engines.slurm.facts import MARK
from isthmus.errors import EngineRefused
from isthmus.resources.jobs import DependencyCondition
from isthmus.resources.work.engine_options import SlurmOptions

_MIB = 2**20
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._+@:, -]+")
USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
RUN_ID = re.compile(r"[0-9a-z][0-9a-z-]{7,60}\.\d{1,6}")


@dataclass(frozen=True, slots=True)
class Submission:
    """What Slurm is sent."""

    name: str
    comment: str
    user: str
    script: str
    work_dir: str
    output: str
    """Where Slurm itself writes; the job's own output goes elsewhere."""
    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    most_nodes: int = 1
    tasks: int = 1
    tasks_per_node: int = 0
    """At most; 0: as Slurm likes."""
    cpus_per_task: int = 1
    memory_mb: int = 0
    """Of each node, or of each cpu; 0: the site's default."""
    memory_by_cpu: bool = False
    time_minutes: int = 0
    gres: tuple[str, ...] = ()
    """Of each node."""
    partitions: tuple[str, ...] = ()
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    signal: str = ""
    licenses: str = ""
    nodelist: str = ""
    exclude: str = ""
    exclusive: bool = False
    requeue: bool = False
    nice: int = 0
    dependency: str = ""


def comment_of(run_id: str) -> str:
    """The mark by which a run's job is found again."""
    return f"{MARK}{run_id}"


def job_name(run: Run) -> str:
    """What people see in squeue: the name that a batch script gives itself, else the job's."""
    if named := run.section(SlurmOptions).job_name:
        return named
    return _NOT_IN_NAME.sub("-", run.env.get(NAME) or run.job).strip("- ")[:64] or "isthmus"


def gres_of(run: Run, classes: Mapping[str, str]) -> tuple[str, ...]:
    """The generic resources of each node for the devices of a run; `classes` maps a DeviceClass to its GRES."""
    found = []
    for name, count in sorted(run.devices.items()):
        if name not in classes:
            raise EngineRefused(
                f"This site has no word for the device {name}. Set slurm.gres in DeviceClass {name}, such as gpu:a100."
            )
        if count % run.nodes:
            raise EngineRefused(f"{count} units of {name} cannot be shared out evenly over {run.nodes} nodes.")
        found.append(f"{classes[name]}:{count // run.nodes}")
    return tuple(found)


def make(
    run: Run,
    *,
    user: str,
    script: str,
    folder: str,
    options: SlurmOptions,
    gres: Sequence[str] = (),
    partitions: Sequence[str] = (),
    account: str = "",
    environment: Mapping[str, str] | None = None,
    after: Mapping[str, int] | None = None,
) -> Submission:
    """What Slurm is sent of a run whose folder on the cluster is this; `after` has the numbers of runs it awaits."""
    tasks = max(run.tasks, run.nodes)
    cpus_per_task = max(1, math.ceil(run.milli_cpus / 1000 / tasks))
    least, most = node_counts(run.nodes, options)
    # Over how many nodes Slurm spreads a range is not known: what each needs goes with the cpus that it gives.
    by_cpu = least < most and not options.memory_per_node
    return Submission(
        name=job_name(run),
        comment=comment_of(run.id),
        user=user,
        script=script,
        work_dir=f"{folder}/work",
        output=f"{folder}/slurm.out",
        environment=dict(environment or {}),
        nodes=least,
        most_nodes=most,
        tasks=tasks,
        tasks_per_node=options.tasks_per_node or 0,
        cpus_per_task=cpus_per_task,
        memory_mb=math.ceil(run.memory_bytes / (tasks * cpus_per_task if by_cpu else run.nodes) / _MIB),
        memory_by_cpu=by_cpu,
        time_minutes=minutes(run.time_limit),
        gres=tuple(gres),
        partitions=tuple(partitions),
        account=options.account or account,
        qos=options.qos or "",
        reservation=options.reservation or "",
        constraint=options.constraint or "",
        signal=options.signal or "",
        licenses=options.licenses or "",
        nodelist=options.nodelist or "",
        exclude=options.exclude or "",
        exclusive=options.exclusive,
        requeue=options.requeue,
        nice=max(0, -run.priority),
        dependency=dependency_of(run, after or {}),
    )


_CONDITIONS = {
    DependencyCondition.SUCCEEDED: "afterok",
    DependencyCondition.FAILED: "afternotok",
    DependencyCondition.FINISHED: "afterany",
    DependencyCondition.STARTED: "after",
}


def dependency_of(run: Run, numbers: Mapping[str, int]) -> str:
    """What the run waits for, in Slurm's words: other runs of ours, and what its options name beside them."""
    parts = [f"{_CONDITIONS[other.condition]}:{numbers[other.run_id]}" for other in run.after]
    own = run.section(SlurmOptions).dependency
    return ",".join([*parts, *([own] if own else [])])


def node_counts(nodes: int, options: SlurmOptions) -> tuple[int, int]:
    """The fewest and the most nodes."""
    least, _, most = (options.nodes or f"{nodes}-{nodes}").partition("-")
    return int(least), int(most)


def node_range(wanted: Submission) -> str:
    """How many nodes, as Slurm writes it; empty where the tasks alone say it.

    Of a range Slurm gives as many nodes as it can, of none as few as it can: a range that excludes nothing is none.
    """
    if wanted.most_nodes <= wanted.nodes:
        return str(wanted.nodes)
    least = -(-wanted.tasks // wanted.tasks_per_node) if wanted.tasks_per_node else 1
    return "" if wanted.nodes <= least and wanted.most_nodes >= wanted.tasks else f"{wanted.nodes}-{wanted.most_nodes}"


def minutes(seconds: float | None) -> int:
    """Slurm counts minutes. A limit between two is held by the script; Slurm's own stands a minute behind it."""
    if seconds is None:
        return 0
    return int(seconds // 60) if seconds % 60 == 0 else math.ceil(seconds / 60) + 1


def sbatch(wanted: Submission) -> list[str]:
    """The words for sbatch; the script goes to its standard input."""
    options: dict[str, str] = {
        "--job-name": wanted.name,
        "--comment": wanted.comment,
        "--chdir": wanted.work_dir,
        "--output": wanted.output,
        "--input": "/dev/null",
        "--nodes": node_range(wanted),
        "--ntasks": str(wanted.tasks),
        "--ntasks-per-node": str(wanted.tasks_per_node) if wanted.tasks_per_node else "",
        "--cpus-per-task": str(wanted.cpus_per_task),
        "--mem-per-cpu" if wanted.memory_by_cpu else "--mem": f"{wanted.memory_mb}M" if wanted.memory_mb else "",
        "--time": str(wanted.time_minutes) if wanted.time_minutes else "",
        "--gres": ",".join(wanted.gres),
        "--partition": ",".join(wanted.partitions),
        "--account": wanted.account,
        "--qos": wanted.qos,
        "--reservation": wanted.reservation,
        "--constraint": wanted.constraint,
        "--signal": wanted.signal,
        "--licenses": wanted.licenses,
        "--nodelist": wanted.nodelist,
        "--exclude": wanted.exclude,
        "--nice": str(wanted.nice) if wanted.nice else "",
        "--dependency": wanted.dependency,
    }
    words = ["--parsable", "--requeue" if wanted.requeue else "--no-requeue"]
    words += ["--exclusive"] if wanted.exclusive else []
    return words + [f"{name}={value}" for name, value in options.items() if value]
