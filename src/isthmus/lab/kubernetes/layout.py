"""Where everything of a Kubernetes lab is: paths, addresses, ports and names. Pure but for reading the lab's number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

IMAGE = "localhost/isthmus-lab:1"
"""What pods run that name no image: a shell, the usual small programs and nothing else."""
PAUSE = "localhost/isthmus-pause:1"
BOARD = "isthmus.dev/akida"
"""The extended resource of which the first node has one."""
SERVICES = "10.96.0.0/16"
SOCKET = "/run/containerd.sock"
"""Of the runtime, inside its node, where /run is the node's own; so the lab's folder may have a long path."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a lab, and what follows from its number."""

    root: Path
    number: int = 0

    @classmethod
    def of(cls, folder: Path) -> Place:
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
    def mark(self) -> tuple[str, str]:
        """What tells the lab's processes from others."""
        return "ISTHMUS_KUBERNETES_LAB", str(self.root)

    @property
    def keys(self) -> Path:
        """Certificates and keys."""
        return self.root / "keys"

    @property
    def bridge(self) -> str:
        """The network interface that joins the nodes."""
        return f"isk{self.number}"

    def link(self, host: int) -> str:
        """This end of a node's cable."""
        return f"{self.bridge}.{host}"

    def address(self, host: int) -> str:
        """Host 1 is this machine, where the control plane runs."""
        return f"10.212.{self.number}.{host}"

    def port(self, which: int) -> int:
        """0 etcd, 1 etcd's peers, 2 the API server, 3 the controllers, 4 the scheduler; the rest are free for tests."""
        return 23_000 + self.number * 8 + which

    @property
    def kubeconfig(self) -> Path:
        """With it one may do everything."""
        return self.root / "kubeconfig"

    @property
    def site_kubeconfig(self) -> Path:
        """With it one may do what Isthmus needs for a site, and no more."""
        return self.root / "isthmus.kubeconfig"

    def node_name(self, index: int) -> str:
        """Names are unique on the machine: cgroups are named by them."""
        return f"k8s{self.number}n{index}"

    def node(self, name: str) -> Path:
        """The folder of a node."""
        return self.root / "nodes" / name

    def pid_file(self, name: str) -> Path:
        """Where the process id of a daemon is kept."""
        return self.root / "run" / f"{name}.pid"

    def log(self, name: str) -> Path:
        """Where a daemon writes its log."""
        return self.root / "log" / f"{name}.log"
