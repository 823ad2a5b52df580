"""Policies: who gets which machines. Each is asked with a snapshot, and answers with changes."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.scheduling.pools.machine_models import HostAction, HostChange, PoolSnapshot
from isthmus.scheduling.pools.sizing import size_pools

Policy = Callable[[PoolSnapshot], tuple[HostChange, ...]]

IDLE = 1800.0
"""After how many seconds the threshold policy switches an idle machine off, as CLUES does by default."""


def static(_: PoolSnapshot) -> tuple[HostChange, ...]:
    """Every machine stays where it is, switched on."""
    return ()


def threshold(seen: PoolSnapshot) -> tuple[HostChange, ...]:
    """Switch off what was idle for half an hour; switch on what is off, into the pool that has waiting jobs."""
    changes = []
    off = [host for host in seen.hosts if not host.on and not host.moving]
    for pool in seen.pools:
        own = [host for host in seen.hosts if host.pool == pool.name]
        idle = [host for host in own if host.on and host.free_at is None and not host.moving]
        wanted = sum(job.hosts for job in seen.waiting if job.pool == pool.name)
        missing = wanted - len(idle) - sum(host.moving for host in own)
        for _ in range(min(max(0, missing), len(off))):
            host = off.pop()
            changes.append(HostChange(host.name, HostAction.START, host.pool, pool.name, "jobs wait"))
        if not wanted:
            resting = (host for host in idle if seen.now - host.since >= IDLE)
            changes += [HostChange(host.name, HostAction.STOP, pool.name, pool.name, "idle") for host in resting]
    return tuple(changes)


def following(seen: PoolSnapshot) -> tuple[HostChange, ...]:
    """The planner of the product, with its defaults."""
    return size_pools(seen).changes


POLICIES: dict[str, Policy] = {"static": static, "threshold": threshold, "isthmus": following}
