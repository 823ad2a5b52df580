"""What a control plane offers its agents to run: itself, as packages. Agents are kept at its own version.

An agent that was installed by its control plane says which build it runs. Where that is another, the control plane
offers its own: the agent says which packages it lacks, gets them as it gets files of jobs, makes an environment of
them beside its own, and starts anew with it (`isthmus.agent.upgrading`). What runs goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .contacts import Contact

AT_ONCE = 4
"""Agents that are given packages at the same time, out of all."""


class AgentPackage(NamedTuple):
    """One wheel."""

    path: Path
    digest: str
    """SHA-256, as hexadecimal digits."""
    size: int

    def to_json(self) -> dict[str, Any]:
        """For the machine that installs it."""
        return {"file": self.path.name, "sha256": self.digest, "size": self.size}


class AgentPackages(NamedTuple):
    """What a machine installs to be an agent."""

    version: str
    build: str
    """Distinguishes two builds of one version."""
    main: AgentPackage
    others: tuple[AgentPackage, ...]
    """What it needs; compiled parts are of this platform and this Python."""
    requirements: tuple[str, ...]
    """The same for an index."""
    platform: str
    python: str

    def to_json(self) -> dict[str, Any]:
        """For the machine that installs them."""
        return {
            "version": self.version,
            "build": self.build,
            "platform": self.platform,
            "python": self.python,
            "requirements": list(self.requirements),
            "main": self.main.to_json(),
            "others": [one.to_json() for one in self.others],
        }


class AgentOffer:
    """The control plane's own packages, for agents that run others."""

    def __init__(self, packages: Callable[[], AgentPackages]) -> None:
        """`packages` is called in a thread: packing them takes seconds."""
        self._packages = packages
        self.turns = asyncio.Semaphore(AT_ONCE)

    async def for_agent(self, contact: Contact) -> AgentPackages | None:
        """What an agent should run instead of what it runs; None: nothing."""
        if not contact.upgrades:
            return None
        found = await asyncio.to_thread(self._packages)
        name = f"{found.version}-{found.build}"
        return None if name == contact.build or name in contact.rejected else found
