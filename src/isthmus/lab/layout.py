"""What the folder, the network and the names of every lab have in common. Nothing is read but the lab's number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from .processes import PATH


@dataclass(frozen=True, slots=True)
class LabPlace:
    """The folder of a lab, and what follows from its number, which no other lab of the machine has."""

    root: Path
    number: int = 0

    interface: ClassVar[str]
    """How the names of network interfaces begin."""
    network: ClassVar[str]
    """The first two parts of every address."""
    ports: ClassVar[int]
    """Where the ports of all labs of this sort begin."""
    node_prefix: ClassVar[str]

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The lab in a folder, set up or not."""
        root = folder.absolute()
        try:
            return cls(root, int((root / "number").read_text()))
        except (FileNotFoundError, ValueError):
            return cls(root)

    @property
    def exists(self) -> bool:
        """Whether it was set up."""
        return self.number > 0

    @property
    def bridge(self) -> str:
        """The network interface that joins the nodes."""
        return f"{self.interface}{self.number}"

    @property
    def path(self) -> str:
        """PATH of all that it runs."""
        return PATH

    @property
    def variables(self) -> dict[str, str]:
        """What all that it runs finds in its environment beside."""
        return {}

    def link(self, host: int) -> str:
        """This end of a node's cable."""
        return f"{self.bridge}.{host}"

    def address(self, host: int) -> str:
        """Host 1 is this machine, where the control daemons run."""
        return f"{self.network}.{self.number}.{host}"

    def port(self, which: int) -> int:
        """One of eight; what each is for, and which are free for tests, the lab's own layout says."""
        return self.ports + self.number * 8 + which

    def node_name(self, index: int) -> str:
        """Names are unique on the machine: cgroups are named by them."""
        return f"{self.node_prefix}{self.number}n{index}"

    def node(self, name: str) -> Path:
        """The folder of a node."""
        return self.root / "nodes" / name

    def pid_file(self, name: str) -> Path:
        """Where the process id of a daemon is kept."""
        return self.root / "run" / f"{name}.pid"

    def log(self, name: str) -> Path:
        """Where a daemon writes its log."""
        return self.root / "log" / f"{name}.log"


@dataclass(frozen=True, slots=True)
class LabStatus:
    """What runs of a lab."""

    folder: Path
    running: bool
    daemons: dict[str, int]
    nodes: dict[str, str]
