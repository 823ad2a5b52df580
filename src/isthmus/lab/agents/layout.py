"""Where everything of a lab of agents is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isthmus.lab.layout import LabPlace

PREFIX = "agent-"
"""How the names of its machines, which are the names of its sites, begin."""


@dataclass(frozen=True, slots=True)
class AgentsLabPlace(LabPlace):
    """A lab of agents. Ports: 0 the proxy, at the lab's own address; the rest are free for tests."""

    interface = "isa"
    network = "10.213"
    ports = 26_000
    node_prefix = PREFIX

    @property
    def mark(self) -> tuple[str, str]:
        """What distinguishes the lab's processes from others."""
        return "ISTHMUS_AGENTS_LAB", str(self.root)

    def node_name(self, index: int) -> str:
        """The same in every lab: it is what the site is called."""
        return f"{PREFIX}{index}"

    @property
    def proxy(self) -> str:
        """Through which agents reach the control plane."""
        return f"http://{self.address(1)}:{self.port(0)}"

    @property
    def target(self) -> Path:
        """Says where the control plane listens: `host:port`."""
        return self.root / "target"

    def shape(self, address: str) -> Path:
        """Says what the link of the machine with this address is like, where the proxy has to shape it."""
        return self.root / "links" / address
