"""A real API server of Kubernetes for tests: etcd and kube-apiserver, without nodes. Needs no root.

The programs are found, downloaded or built as for the lab; a first build takes minutes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.lab import processes
from isthmus.lab.kubernetes.binaries import ensure
from isthmus.lab.kubernetes.cluster import free_number, machine_lock
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.lab.kubernetes.layout import KubernetesLabPlace


@contextmanager
def running_api_server(*, controllers: bool = False) -> Iterator[LabControlPlane]:
    """An API server on a private port, with a kubeconfig that may do everything at `control.kubeconfig`."""
    binaries = ensure()
    folder = Path(tempfile.mkdtemp(prefix="isk-"))
    control: LabControlPlane | None = None
    try:
        with machine_lock():
            control = LabControlPlane(KubernetesLabPlace(folder, free_number(folder)), binaries, address="127.0.0.1")
            control.start_etcd()  # from now on the number's ports are seen to be in use
        control.start_apiserver()
        if controllers:
            control.start_controllers()
        yield control
    finally:
        if control is not None:
            control.stop()
            place = control.place
            processes.kill_all(lambda: processes.all_of(place))
        shutil.rmtree(folder, ignore_errors=True)
