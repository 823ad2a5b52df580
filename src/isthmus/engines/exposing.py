"""The contract of those who show a site's nodes elsewhere: as Nodes of a Kubernetes cluster.

Whoever implements it recognises what it made by the site's identity and touches nothing else. Each call looks at the
whole present state, so that it may be repeated after a crash. Heartbeats go on by themselves between calls; they say
that the site's state is known, and stop when it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import SiteNode


@dataclass(frozen=True, slots=True)
class Shown:
    """How it went."""

    nodes: int
    """So many are there as they should be."""
    refused: tuple[str, ...] = ()
    """A sentence for each that could not be shown, such as one whose name is taken."""


class NodeExposure(Protocol):
    """Shows the nodes of one site in one cluster."""

    async def show(self, version: str, nodes: Sequence[SiteNode], classes: Sequence[DeviceClass]) -> Shown:
        """Make the cluster show these nodes and no others of the site; raises SiteUnavailable."""
        ...

    def rest(self) -> None:
        """Nothing is known of the site: what is shown stays, and its heartbeats stop until it is shown again."""
        ...

    async def remove(self) -> None:
        """Take away all that was shown; raises SiteUnavailable."""
        ...

    async def close(self) -> None:
        """Let go. What is shown stays."""
        ...
