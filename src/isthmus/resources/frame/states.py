"""States as data: each member documented, each transition in one table.

The diagrams in the documentation are drawn from these tables, and `check_transition` holds everybody to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

Phase = TypeVar("Phase", bound=StrEnum)


class JobPhase(StrEnum):
    """Where a job is on its way.

    `Placed` is the record of an intention: it is written before the engine is asked, so that after a crash the
    engine is searched for the run before anything is sent again.
    """

    PENDING = "Pending"
    PLACED = "Placed"
    QUEUED = "Queued"
    RUNNING = "Running"
    FINISHING = "Finishing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen."""
        return self in TERMINAL

    @property
    def occupies(self) -> bool:
        """Whether a job in this phase takes room at its site."""
        return self in (JobPhase.PLACED, JobPhase.QUEUED, JobPhase.RUNNING, JobPhase.FINISHING)


TERMINAL = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED})

JOB_PHASES: Mapping[JobPhase, str] = {
    JobPhase.PENDING: "accepted; waits for dependencies, for a site that fits, for room, or for its next attempt",
    JobPhase.PLACED: "a site is chosen and written down; the engine is being asked",
    JobPhase.QUEUED: "the engine has it in its own queue",
    JobPhase.RUNNING: "its processes run",
    JobPhase.FINISHING: "its processes ended; outputs are being collected",
    JobPhase.SUCCEEDED: "ended with exit code 0 and its outputs are kept",
    JobPhase.FAILED: "ended otherwise, and no attempt is left",
    JobPhase.CANCELLED: "ended because somebody asked for it, or because what it depends on did not hold",
}

_P = JobPhase
JOB_TRANSITIONS: Mapping[JobPhase, frozenset[JobPhase]] = {
    _P.PENDING: frozenset({_P.PLACED, _P.RUNNING, _P.SUCCEEDED, _P.FAILED, _P.CANCELLED}),
    _P.PLACED: frozenset({_P.QUEUED, _P.RUNNING, _P.FINISHING, _P.SUCCEEDED, _P.FAILED, _P.PENDING, _P.CANCELLED}),
    _P.QUEUED: frozenset({_P.RUNNING, _P.FINISHING, _P.SUCCEEDED, _P.FAILED, _P.PENDING, _P.CANCELLED}),
    _P.RUNNING: frozenset({_P.QUEUED, _P.FINISHING, _P.SUCCEEDED, _P.FAILED, _P.PENDING, _P.CANCELLED}),
    _P.FINISHING: frozenset({_P.SUCCEEDED, _P.FAILED, _P.PENDING, _P.CANCELLED}),
    _P.SUCCEEDED: frozenset(),
    _P.FAILED: frozenset(),
    _P.CANCELLED: frozenset(),
}


class SitePhase(StrEnum):
    """Whether a site takes work."""

    UNKNOWN = "Unknown"
    READY = "Ready"
    UNREACHABLE = "Unreachable"
    DISABLED = "Disabled"


SITE_PHASES: Mapping[SitePhase, str] = {
    SitePhase.UNKNOWN: "not looked at yet",
    SitePhase.READY: "answers; takes work",
    SitePhase.UNREACHABLE: "does not answer; its jobs keep their last known state and nothing new is sent",
    SitePhase.DISABLED: "takes no new work because its spec says so; running jobs go on",
}

_S = SitePhase
SITE_TRANSITIONS: Mapping[SitePhase, frozenset[SitePhase]] = {
    _S.UNKNOWN: frozenset({_S.READY, _S.UNREACHABLE, _S.DISABLED}),
    _S.READY: frozenset({_S.UNREACHABLE, _S.DISABLED}),
    _S.UNREACHABLE: frozenset({_S.READY, _S.DISABLED}),
    _S.DISABLED: frozenset({_S.READY, _S.UNREACHABLE}),
}


class HostPhase(StrEnum):
    """What is known of a machine through its BMC."""

    UNKNOWN = "Unknown"
    READY = "Ready"
    CHANGING = "Changing"
    UNREACHABLE = "Unreachable"
    MAINTENANCE = "Maintenance"


HOST_PHASES: Mapping[HostPhase, str] = {
    HostPhase.UNKNOWN: "not looked at yet",
    HostPhase.READY: "its BMC answers, and its power is as wanted",
    HostPhase.CHANGING: "its power is being changed",
    HostPhase.UNREACHABLE: "its BMC does not answer as it should; nothing is known, and nothing is done",
    HostPhase.MAINTENANCE: "somebody works on it: its power is not touched",
}

_H = HostPhase
HOST_TRANSITIONS: Mapping[HostPhase, frozenset[HostPhase]] = {
    phase: frozenset(set(HostPhase) - {phase, _H.UNKNOWN}) for phase in HostPhase
}


class TenantPhase(StrEnum):
    """Whether a tenant may work."""

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    TERMINATING = "Terminating"


TENANT_PHASES: Mapping[TenantPhase, str] = {
    TenantPhase.ACTIVE: "its members may work",
    TenantPhase.SUSPENDED: "its members may read; nothing new starts",
    TenantPhase.TERMINATING: "being deleted: its jobs are cancelled and its objects removed",
}

_T = TenantPhase
TENANT_TRANSITIONS: Mapping[TenantPhase, frozenset[TenantPhase]] = {
    _T.ACTIVE: frozenset({_T.SUSPENDED, _T.TERMINATING}),
    _T.SUSPENDED: frozenset({_T.ACTIVE, _T.TERMINATING}),
    _T.TERMINATING: frozenset(),
}


class ExperimentPhase(StrEnum):
    """Where an experiment is on its way."""

    PENDING = "Pending"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen."""
        return not EXPERIMENT_TRANSITIONS[self]


EXPERIMENT_PHASES: Mapping[ExperimentPhase, str] = {
    ExperimentPhase.PENDING: "accepted; no run has been made",
    ExperimentPhase.RUNNING: "runs are made and compared as they end",
    ExperimentPhase.STOPPING: "a stop rule holds or somebody cancelled it; what runs is being ended",
    ExperimentPhase.SUCCEEDED: "over; at least one run succeeded, and the comparison is complete",
    ExperimentPhase.FAILED: "over; no run succeeded, too many failed, or it could not be carried out",
    ExperimentPhase.CANCELLED: "ended because somebody asked for it; what was measured stays",
}

_E = ExperimentPhase
EXPERIMENT_TRANSITIONS: Mapping[ExperimentPhase, frozenset[ExperimentPhase]] = {
    _E.PENDING: frozenset({_E.RUNNING, _E.STOPPING, _E.FAILED, _E.CANCELLED, _E.SUCCEEDED}),
    _E.RUNNING: frozenset({_E.STOPPING, _E.SUCCEEDED, _E.FAILED, _E.CANCELLED}),
    _E.STOPPING: frozenset({_E.SUCCEEDED, _E.FAILED, _E.CANCELLED}),
    _E.SUCCEEDED: frozenset(),
    _E.FAILED: frozenset(),
    _E.CANCELLED: frozenset(),
}


class InstancePhase(StrEnum):
    """Where an instance is on its way."""

    PENDING = "Pending"
    STARTING = "Starting"
    READY = "Ready"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"


INSTANCE_PHASES: Mapping[InstancePhase, str] = {
    InstancePhase.PENDING: "accepted; waits for its template, for a site or for room",
    InstancePhase.STARTING: "its job runs; the program does not listen yet",
    InstancePhase.READY: "the program listens; whoever may can open its address",
    InstancePhase.STOPPING: "somebody stopped it, nobody used it for long, or its time is over; its job is being ended",
    InstancePhase.STOPPED: "nothing of it runs; it can be started again",
    InstancePhase.FAILED: "its program ended by itself, or could not be started; it can be started again",
}

_I = InstancePhase
INSTANCE_TRANSITIONS: Mapping[InstancePhase, frozenset[InstancePhase]] = {
    _I.PENDING: frozenset({_I.STARTING, _I.READY, _I.STOPPING, _I.STOPPED, _I.FAILED}),
    _I.STARTING: frozenset({_I.PENDING, _I.READY, _I.STOPPING, _I.STOPPED, _I.FAILED}),
    _I.READY: frozenset({_I.PENDING, _I.STARTING, _I.STOPPING, _I.STOPPED, _I.FAILED}),
    _I.STOPPING: frozenset({_I.STOPPED, _I.FAILED}),
    _I.STOPPED: frozenset({_I.PENDING}),
    _I.FAILED: frozenset({_I.PENDING, _I.STOPPED}),
}


def check_transition(table: Mapping[Phase, frozenset[Phase]], old: Phase, new: Phase) -> None:
    """Raise if the table has no such step: that is a fault of ours, never of a user's."""
    if old != new and new not in table[old]:
        raise AssertionError(f"no transition from {old} to {new}")
