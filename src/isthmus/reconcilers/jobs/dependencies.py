"""Whether what a job depends on holds. Pure.

A dependency is bound to the job (by uid) that first bore the name, so that a later job of the same name does not
count, and once it holds it holds for good, though the other job may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Dependency, DependencyCondition, Job, ResolvedDependency


@dataclass(frozen=True, slots=True)
class DependencyOutlook:
    """How it stands: all hold; one waits; or one can never hold any more."""

    resolved: list[ResolvedDependency]
    waits_for: str | None = None
    hopeless: str | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """The other job, as far as it matters."""

    uid: str
    phase: JobPhase
    started: bool


def outlook(job: Job, find: Callable[[str], Other | None]) -> DependencyOutlook:
    """How a job's dependencies stand. `find` gives the job that bears a name now."""
    known = {resolved.job: resolved for resolved in job.status.dependencies or ()}
    resolved: list[ResolvedDependency] = []
    waits_for = hopeless = None
    for dependency in job.spec.dependencies:
        before, other = known.get(dependency.job), find(dependency.job)
        if before and before.satisfied:
            resolved.append(before)
            continue
        if before and (other is None or other.uid != before.uid):
            hopeless = hopeless or f"job {dependency.job} was deleted before it {_wanted(dependency)}"
            resolved.append(before)
        elif other is None:
            waits_for = waits_for or f"waits for job {dependency.job}, which does not exist yet"
        else:
            holds = _holds(dependency.condition, other)
            resolved.append(ResolvedDependency(job=dependency.job, uid=other.uid, satisfied=bool(holds)))
            if holds is None:
                hopeless = hopeless or f"job {dependency.job} ended as {other.phase}, so it never {_wanted(dependency)}"
            elif not holds:
                waits_for = waits_for or f"waits until job {dependency.job} has {_wanted(dependency)}"
    return DependencyOutlook(resolved, waits_for, hopeless)


def circle(name: str, awaits: Callable[[str], list[str]], *, limit: int = 1000) -> list[str] | None:
    """The way on which a job waits for itself, from its name to its name; None if there is none among `limit` jobs."""
    came_from: dict[str, str] = {}
    waiting = [name]
    for here in waiting:  # grows while it is walked
        for there in awaits(here):
            if there == name:
                way = [here]
                while way[-1] != name:
                    way.append(came_from[way[-1]])
                return [*reversed(way), name]
            if there not in came_from and len(waiting) < limit:
                came_from[there] = here
                waiting.append(there)
    return None


def _holds(condition: DependencyCondition, other: Other) -> bool | None:
    """True, not yet (False), or never (None)."""
    over = other.phase.terminal
    match condition:
        case DependencyCondition.SUCCEEDED:
            return other.phase is JobPhase.SUCCEEDED or (None if over else False)
        case DependencyCondition.FAILED:
            return other.phase is JobPhase.FAILED or (None if over else False)
        case DependencyCondition.FINISHED:
            return over
        case DependencyCondition.STARTED:
            return other.started or (None if over else False)


def _wanted(dependency: Dependency) -> str:
    return {
        DependencyCondition.SUCCEEDED: "succeeded",
        DependencyCondition.FAILED: "failed",
        DependencyCondition.FINISHED: "finished",
        DependencyCondition.STARTED: "started",
    }[dependency.condition]
