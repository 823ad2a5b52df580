"""The contract of a driver of hosts: small, asynchronous, without retries of its own.

Every question may take long or be answered by nobody: then `HostUnavailable` is raised, and nothing is concluded. What
a BMC says is what a stranger says: drivers bound it and give it back in the words of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from isthmus.resources.hosts import HostInventory, HostPower, Reset


@dataclass(frozen=True, slots=True)
class HostSeen:
    """One look at a machine."""

    power: HostPower
    health: str
    inventory: HostInventory


@runtime_checkable
class HostDriver(Protocol):
    """Reaches one machine from outside."""

    async def look(self) -> HostSeen:
        """What it is and whether it has power; raises HostUnavailable, HostRefused, Misconfigured."""

    async def reset(self, reset: Reset) -> None:
        """Ask for a change of power. It has begun when this returns, and may take long; the same request twice is as
        good as once. Raises HostUnavailable, HostRefused, Misconfigured."""

    async def close(self) -> None:
        """Let go of connections."""
