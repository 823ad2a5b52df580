"""Why a run ended: what Slurm says, what the job itself recorded, and what we asked for, in one table. Pure.

Slurm says CANCELLED of more than it was asked to cancel. After slurmctld was killed and started again, it does of jobs
whose second launch a node refused, of jobs that it could not start, and of some that had long ended by themselves. So a
cancellation is only claimed when we asked for it, when accounting names a person, or when nothing speaks against it (a
job that somebody cancels while it runs is ended by SIGTERM, and records that):

- what the job itself recorded about its own end counts first: a program that ended with exit code 0 has completed;
- a job that was given nodes and never began was dropped by Slurm, unless somebody is named who cancelled it. Nobody ran
  it: it ends as `NodeLost`, and runs again if the job has retries;
- root, and the account under which Slurm runs, may be an administrator or Slurm itself: a node that refuses a launch
  because the job runs there already has it cancelled in root's name. Slurm gives itself away by a start that is later
  than the job's own: such a job counts as cancelled by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from isthmus.engines.base import EndReason


class Own(Enum):
    """How far a run came, by what it recorded itself."""

    WAITED = "was never given nodes"
    PLACED = "was given nodes, and never began"
    BEGUN = "began, and recorded no end"
    SUCCEEDED = "recorded exit code 0"
    FAILED = "recorded another exit code"
    SIGNALLED = "recorded that a signal ended it"


class By(Enum):
    """Who cancelled a job that Slurm calls cancelled."""

    US = "we asked for it"
    PERSON = "accounting names a person"
    SERVICE = "accounting names root, or the account of Slurm itself"
    NOBODY = "accounting names nobody"
    UNKNOWN = "there is no accounting, or it says nothing yet"


_CANCELLED, _LOST, _ITS_OWN = EndReason.CANCELLED, EndReason.NODE_LOST, EndReason.COMPLETED
_COLUMNS = (Own.WAITED, Own.PLACED, Own.BEGUN, Own.SUCCEEDED, Own.FAILED, Own.SIGNALLED)


def _row(*reasons: EndReason) -> Mapping[Own, EndReason]:
    return dict(zip(_COLUMNS, reasons, strict=True))


# fmt: off
CANCELLED: Mapping[By, Mapping[Own, EndReason]] = {
    # The columns:      WAITED      PLACED      BEGUN       SUCCEEDED   FAILED      SIGNALLED
    By.US:         _row(_CANCELLED, _CANCELLED, _CANCELLED, _CANCELLED, _CANCELLED, _CANCELLED),
    By.PERSON:     _row(_CANCELLED, _CANCELLED, _CANCELLED, _ITS_OWN,   _CANCELLED, _CANCELLED),
    By.SERVICE:    _row(_CANCELLED, _LOST,      _LOST,      _ITS_OWN,   _ITS_OWN,   _CANCELLED),
    By.NOBODY:     _row(_LOST,      _LOST,      _LOST,      _ITS_OWN,   _ITS_OWN,   _LOST),
    By.UNKNOWN:    _row(_CANCELLED, _LOST,      _LOST,      _ITS_OWN,   _ITS_OWN,   _CANCELLED),
}
"""What a run ended with that Slurm calls cancelled. COMPLETED: by itself, with the exit that it recorded."""
# fmt: on


def cancelled(by: By, own: Own, who: str = "") -> tuple[EndReason, str]:
    """Why a run ended that Slurm calls cancelled, and what to say about it."""
    reason = CANCELLED[by][own]
    if reason is EndReason.COMPLETED or by is By.US:
        return reason, ""
    if reason is EndReason.NODE_LOST:
        if own in (Own.WAITED, Own.PLACED):
            return reason, "Slurm dropped it before it began, and nobody is known to have cancelled it; submit it again"
        return reason, "Slurm ended it and calls it cancelled, but nobody is known to have cancelled it"
    if by is By.UNKNOWN:
        return reason, "cancelled on the cluster; Slurm does not say by whom"
    if by is By.SERVICE:
        return reason, f"cancelled on the cluster by {who}: by an administrator, or by Slurm itself"
    return reason, f"cancelled on the cluster by {who}"


def without_slurm(own: Own, *, asked: bool) -> tuple[EndReason, str]:
    """Why a run ended of which Slurm and its accounting know nothing; `asked`: whether we asked for its end."""
    if own in (Own.SUCCEEDED, Own.FAILED) or (own is Own.SIGNALLED and not asked):
        return EndReason.COMPLETED, ""
    if asked:
        return EndReason.CANCELLED, "" if own is Own.SIGNALLED else "cancelled; Slurm no longer knows the job"
    return (
        EndReason.SUPERVISOR_LOST,
        "Slurm no longer knows the job, which left no word of its end and writes nothing any more",
    )


def not_begun(own: Own, reported: str, *, asked: bool) -> tuple[EndReason, str]:
    """Why a run ended that Slurm says it never began itself: what it recorded counts, and else what we asked for."""
    if own in (Own.SUCCEEDED, Own.FAILED, Own.SIGNALLED):
        return EndReason.COMPLETED, ""
    return (EndReason.CANCELLED, "") if asked else (EndReason.START_FAILED, reported)


def node_lost(own: Own, reported: str) -> tuple[EndReason, str]:
    """Why a run ended whose node Slurm calls lost: one that had recorded its own end by then was not lost."""
    if own in (Own.SUCCEEDED, Own.FAILED):
        return EndReason.COMPLETED, ""
    return EndReason.NODE_LOST, reported
