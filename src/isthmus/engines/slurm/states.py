"""Every state and flag of a Slurm job, in our words: one table, and unknown ones too. Pure.

Slurm gives one base state and any number of flags; squeue shows only one word of them, newer JSON a list. A flag that
says that something still goes on outweighs a base state that says it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from isthmus.engines.base import EndReason, RunState

_QUEUED, _RUNNING, _ENDED = RunState.QUEUED, RunState.RUNNING, RunState.ENDED


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a state of Slurm's means to us."""

    state: RunState
    reason: EndReason | None = None
    reported: str = ""
    """What people are shown beyond the state itself."""


BASE: Mapping[str, Meaning] = {
    "PENDING": Meaning(_QUEUED),
    "RUNNING": Meaning(_RUNNING),
    "SUSPENDED": Meaning(_RUNNING, reported="suspended"),
    "COMPLETED": Meaning(_ENDED, EndReason.COMPLETED),
    "FAILED": Meaning(_ENDED, EndReason.COMPLETED),
    "CANCELLED": Meaning(_ENDED, EndReason.CANCELLED),
    "TIMEOUT": Meaning(_ENDED, EndReason.TIME_LIMIT),
    "DEADLINE": Meaning(_ENDED, EndReason.TIME_LIMIT, "Slurm ended it at its deadline"),
    "OUT_OF_MEMORY": Meaning(_ENDED, EndReason.OUT_OF_MEMORY),
    "NODE_FAIL": Meaning(_ENDED, EndReason.NODE_LOST, "a node it ran on went down"),
    "BOOT_FAIL": Meaning(_ENDED, EndReason.NODE_LOST, "a node for it did not boot"),
    "PREEMPTED": Meaning(_ENDED, EndReason.PREEMPTED, "made room for a job that matters more to the site"),
    "REVOKED": Meaning(_ENDED, EndReason.START_FAILED, "another cluster of the federation took it"),
}
FLAGS: Mapping[str, Meaning] = {
    "COMPLETING": Meaning(_RUNNING, reported="ending"),
    "CONFIGURING": Meaning(_RUNNING, reported="its nodes are being made ready"),
    "RESIZING": Meaning(_RUNNING, reported="changing its size"),
    "SIGNALING": Meaning(_RUNNING, reported="being signalled"),
    "STOPPED": Meaning(_RUNNING, reported="stopped"),
    "STAGE_OUT": Meaning(_RUNNING, reported="its burst buffer is being emptied"),
    "POWER_UP_NODE": Meaning(_RUNNING, reported="its nodes are being switched on"),
    "EXPEDITING": Meaning(_QUEUED, reported="requeued to start as soon as possible"),
    "REQUEUED": Meaning(_QUEUED, reported="requeued by Slurm"),
    "REQUEUE": Meaning(_QUEUED, reported="requeued by Slurm"),
    "REQUEUE_FED": Meaning(_QUEUED, reported="requeued in the federation"),
    "REQUEUE_HOLD": Meaning(_QUEUED, reported="requeued and held by Slurm"),
    "RESV_DEL_HOLD": Meaning(_QUEUED, reported="held, because its reservation was deleted"),
    "SPECIAL_EXIT": Meaning(_QUEUED, reported="requeued and held after a special exit"),
}
# These say something about the way, not about where the job is.
SIDE_REMARKS = frozenset({"LAUNCH_FAILED", "UPDATE_DB", "RECONFIG_FAIL"})


@lru_cache(maxsize=1024)  # asked for every job at every look, and there are not many states
def meaning(words: tuple[str, ...]) -> Meaning:
    """What the words of a state mean together; Unknown for what the tables do not have."""
    found = [word for text in words for word in _split(text) if word not in SIDE_REMARKS]
    flags = [FLAGS[word] for word in found if word in FLAGS]
    base = [BASE[word] for word in found if word in BASE]
    if len(flags) + len(base) != len(found) or not found:
        return Meaning(RunState.UNKNOWN, reported=f"Slurm calls its state {'+'.join(found) or 'nothing'}")
    if flags:
        # Of several flags the one that speaks of processes counts: they may still be running.
        return next((flag for flag in flags if flag.state is _RUNNING), flags[0])
    return base[0]


def _split(text: str) -> list[str]:
    """`CANCELLED by 1000` and `COMPLETED+UPDATE_DB` are how some commands write it."""
    return [part.split()[0].upper() for part in text.split("+") if part.split()]


REASONS: Mapping[str, str] = {
    "Resources": "waits for room",
    "Priority": "waits behind higher-priority jobs",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that did not end as wanted; cancel it",
    "JobHeldUser": "held",
    "JobHeldAdmin": "held by an administrator of the site",
    "BeginTime": "is not to begin yet",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is closed",
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionConfig": "its partition has no nodes that fit",
    "ReqNodeNotAvail": "a node it needs was not available when Slurm last looked",
    "Nodes required for job are DOWN": "a node it needs was not available when Slurm last looked",
    "job requeued in held state": "requeued and held by Slurm",
    "JobArrayTaskLimit": "as many of its array run as may",
    "Reservation": "waits for its reservation",
    "Licenses": "waits for a licence",
    "AssociationJobLimit": "its account runs as many jobs as it may",
    "AssocGrpCpuLimit": "its account uses as many CPUs as it may",
    "QOSMaxJobsPerUserLimit": "its owner runs as many jobs of this QOS as allowed",
    "QOSJobLimit": "its QOS runs as many jobs as it may",
    "launch_failed_requeued_held": "could not be started, and is held; look at the nodes, then release or cancel it",
}


def why_waiting(reason: str) -> str:
    """Why Slurm lets a job wait, for people; Slurm's own word where we have no better."""
    word = reason.split(",")[0].strip("() ")
    if not word or word == "None":
        return ""
    return REASONS.get(word) or f"waits ({word})"
