"""A real Slurm and the API server, controllers and scheduler of a real Kubernetes, side by side."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.lab.kubernetes import manifests
from isthmus.lab.kubernetes.asking import Asker
from isthmus.lab.kubernetes.control_plane import ControlPlane
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.testing.kubernetes import running_api_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """No node runs anything here. Isthmus has the rights that the documentation asks for, and no more."""
    with running_api_server(controllers=True) as control:
        asker = Asker(control.url, control.place.keys)
        for obj in manifests.node_grants():
            namespace = obj["metadata"].get("namespace", "")
            asker.create(manifests.PATHS[obj["kind"]].format(namespace=namespace), obj)
        control.authority.kubeconfig(control.place.site_kubeconfig, control.url, "isthmus", manifests.USER)
        yield control


@pytest.fixture
def asker(cluster: ControlPlane) -> Asker:
    return Asker(cluster.url, cluster.place.keys)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmLab]:
    """Four nodes, one with a board and one with a GPU."""
    folder = Path(tempfile.mkdtemp(prefix="isl-"))
    folder.chmod(0o711)
    made = SlurmLab(folder / "lab")
    try:
        made.up(4, LabSettings(options={"ReturnToService": "0"}))  # one that is told to be down stays so
        yield made
    finally:
        made.down(erase=True)
        shutil.rmtree(folder)
