"""What Slurm says, as data: the same whichever way it was asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from .states import Meaning, meaning

MARK = "isthmus:"
"""Begins the comment of every job of ours; the id of the run follows."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as slurmctld has it."""

    id: int
    states: tuple[str, ...]
    reason: str = ""
    user: str = ""
    partition: str = ""
    comment: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    """Of a job that waits: when Slurm plans to start it, if it has a plan."""
    ended_at: datetime | None = None
    """Of a job that runs: when its time is over."""
    nodes: str = ""
    cpus: int = 0
    node_count: int = 1
    exit_code: int | None = None
    signal: int | None = None

    @property
    def run_id(self) -> str | None:
        """The run that it was submitted for, if it is ours."""
        first = self.comment.split(" ", 1)[0]
        return first.removeprefix(MARK) if first.startswith(MARK) else None

    @property
    def meaning(self) -> Meaning:
        """Its state in our words."""
        return meaning(self.states)


@dataclass(frozen=True, slots=True)
class Accounted:
    """A job as the accounting has it: with the sums and peaks over its steps."""

    id: int
    states: tuple[str, ...]
    user: str = ""
    work_dir: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    derived_exit_code: int | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    energy_joules: float | None = None
    nodes: str = ""
    cpus: int = 0
    steps: int = 0
    steps_end: bool = True
    """Whether all of these have ended; slurmctld may report the end of a step after that of its job."""
    cancelled_by: str | None = None
    """Whom accounting names, by name or number; nobody: empty; None where it would not say."""

    @property
    def whole(self) -> bool:
        """Whether the accounting has heard all of it: its end, and the steps that it had. Without nodes it had none."""
        heard = self.ended_at is not None and self.steps_end
        return heard and (self.steps > 0 or self.started_at is None or not self.nodes)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node. Its state is a set of words such as IDLE, DRAIN and DYNAMIC_NORM."""

    name: str
    states: frozenset[str] = frozenset()
    cpus: int = 0
    memory_bytes: int = 0
    allocated_cpus: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether jobs can run there, now or when others have ended."""
        return not self.states & {
            "DOWN",
            "DRAIN",
            "FAIL",
            "INVAL",
            "INVALID_REG",
            "FUTURE",
            "UNKNOWN",
            "NOT_RESPONDING",
        }


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition and its limits; None is no limit."""

    name: str
    state: str = "UP"
    default: bool = False
    max_seconds: float | None = None
    max_nodes: int | None = None
    max_memory_per_node: int | None = None
    allow_accounts: tuple[str, ...] | None = None
    allow_groups: tuple[str, ...] | None = None
    allow_qos: tuple[str, ...] | None = None
    deny_accounts: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    min_nodes: int = 0
    nodes: int = 0
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """How the site is configured, as far as it matters to us."""

    version: str = ""
    accounting: bool = False
    gathers_usage: bool = False
    measures_energy: bool = False
    kill_wait: float = 30.0
    services: frozenset[str] = frozenset({"0", "root", "slurm"})
    """Accounts, by name and number, under which Slurm itself acts."""
    extra: dict[str, str] = field(default_factory=dict)
