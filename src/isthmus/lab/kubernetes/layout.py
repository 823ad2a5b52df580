"""Where everything of a Kubernetes lab is, and the images and addresses that its parts agree on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isthmus.lab.layout import LabPlace

IMAGE = "localhost/isthmus-lab:1"
"""What pods run that name no image: a shell, the usual small programs and nothing else."""
PAUSE = "localhost/isthmus-pause:1"
BOARD = "isthmus.dev/akida"
"""The extended resource of which the first node has one."""
SERVICES = "10.96.0.0/16"
SOCKET = "/run/containerd.sock"
"""Of the runtime, inside its node, where /run is the node's own; so the lab's folder may have a long path."""


@dataclass(frozen=True, slots=True)
class KubernetesLabPlace(LabPlace):
    """A Kubernetes lab. Ports: 0 etcd, 1 etcd's peers, 2 the API server, 3 the controllers, 4 the scheduler."""

    interface = "isk"
    network = "10.212"
    ports = 23_000
    node_prefix = "k8s"

    @property
    def mark(self) -> tuple[str, str]:
        """What distinguishes the lab's processes from others."""
        return "ISTHMUS_KUBERNETES_LAB", str(self.root)

    @property
    def keys(self) -> Path:
        """Certificates and keys."""
        return self.root / "keys"

    @property
    def kubeconfig(self) -> Path:
        """With it one may do everything."""
        return self.root / "kubeconfig"

    @property
    def site_kubeconfig(self) -> Path:
        """With it one may do what Isthmus needs for a site, and no more."""
        return self.root / "isthmus.kubeconfig"
