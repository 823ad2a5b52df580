"""A real Slurm and the API server, controllers and scheduler of a real Kubernetes, side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isthmus.lab.kubernetes import manifests
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.lab.kubernetes.lab_client import LabClient
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.testing.kubernetes import running_api_server
from isthmus.testing.slurm import running_slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabControlPlane]:
    """No node runs anything here. Isthmus has the rights that the documentation asks for, and no more."""
    with running_api_server() as control:
        control.start_controllers(grace_seconds=20)  # a busy machine may keep heartbeats waiting
        asker = LabClient(control.url, control.place.keys)
        for obj in manifests.node_grants():
            namespace = obj["metadata"].get("namespace", "")
            asker.create(manifests.PATHS[obj["kind"]].format(namespace=namespace), obj)
        control.authority.kubeconfig(control.place.site_kubeconfig, control.url, "isthmus", manifests.USER)
        yield control


@pytest.fixture
def asker(cluster: LabControlPlane) -> LabClient:
    return LabClient(cluster.url, cluster.place.keys)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmLab]:
    """Four nodes, one with a board and one with a GPU."""
    with running_slurm(4, LabSettings(options={"ReturnToService": "0"})) as made:  # told to be down, it stays so
        yield made
