"""What the program measures of itself, in Prometheus' form; `/metrics` shows it.

The library is loaded when something is counted: an agent, which shows nothing, does without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counters import (
        EVENTS_DROPPED,
        JOBS_ENDED,
        JOBS_WAITING,
        KUBERNETES_REQUESTS,
        LEADING,
        LOOP_BLOCKED,
        LOOP_BLOCKED_SECONDS,
        PLACEMENT_SECONDS,
        RECONCILE_ERRORS,
        RECONCILES,
        TASK_FAILURES,
    )


def count_task_failure(task: str) -> None:
    """A background task of this name failed."""
    from .counters import TASK_FAILURES

    TASK_FAILURES.labels(task).inc()


__all__ = [
    "EVENTS_DROPPED",
    "JOBS_ENDED",
    "JOBS_WAITING",
    "KUBERNETES_REQUESTS",
    "LEADING",
    "LOOP_BLOCKED",
    "LOOP_BLOCKED_SECONDS",
    "PLACEMENT_SECONDS",
    "RECONCILES",
    "RECONCILE_ERRORS",
    "TASK_FAILURES",
    "count_task_failure",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".counters", __name__), name)
