"""The control plane as pods of the cluster that it lives in and runs work on: installed as a user installs it.

Its image is made of what runs these tests, and loaded into the lab's nodes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.lab.kubernetes.manifests import grants
from isthmus.testing.kubectl import Kubectl
from isthmus.testing.servers import eventually

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.timeout(600)]
PATIENCE = 180.0
SYSTEM = ("-n", "isthmus-system")
ACCOUNT = {"kind": "ServiceAccount", "name": "isthmus", "namespace": "isthmus-system"}
# In a pod, as its administrator: its own certificate is what it is known by.
INSIDE = "ISTHMUS_URL=https://localhost:7070 ISTHMUS_CA_FILE=/data/tls/ca.pem ISTHMUS_TOKEN=$(cat /data/admin.token)"


class Cluster:
    """The lab, as its administrator sees it with kubectl."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def do(self, *words: str, given: Any = None) -> str:
        done = self._kubectl.run(*words, text=json.dumps(given) if given else None, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.do("get", *words, "-o", "json"))

    def ready(self) -> list[str]:
        """The control planes that take requests."""
        pods = self.get("pods", *SYSTEM, "-l", "app.kubernetes.io/component=control-plane")["items"]
        conditions = {p["metadata"]["name"]: p["status"].get("conditions", ()) for p in pods if not _leaving(p)}
        return [name for name, found in conditions.items() if any(map(_is_ready, found))]

    def leader(self) -> str:
        """The pod that holds the lease."""
        holder = self.get("lease", "leader", *SYSTEM)["spec"].get("holderIdentity", "")
        return next((name for name in self.ready() if holder.startswith(f"{name}-")), "")

    def phase(self, name: str) -> str:
        status = self.get("ijob", name, "-n", "optics").get("status") or {}
        return str(status.get("phase"))

    def log(self, pod: str, job: str) -> str:
        """What a job printed, as a control plane tells it; nothing while that one does not answer."""
        words = ("exec", *SYSTEM, pod, "--", "sh", "-c", f"{INSIDE} isthmus logs {job} -n optics")
        return self._kubectl.run(*words, timeout=120).stdout


def _leaving(pod: Any) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(condition: Any) -> bool:
    return bool(condition["type"] == "Ready" and condition["status"] == "True")


@pytest.fixture(scope="module")
def cluster(lab: KubernetesLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two control planes, installed by the command, with a site that runs pods beside them."""
    image = lab.load_operator()
    where = ["--kubeconfig", str(lab.place.kubeconfig), "--image", image, "--replicas", "2"]
    command = [sys.executable, "-m", "isthmus.cli", "install", "--kubernetes", *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    program = shutil.which("kubectl")
    assert program is not None
    made = Cluster(Kubectl(Path(program), tmp_path_factory.mktemp("home"), lab.place.kubeconfig))
    for obj in grants():  # what a site needs, for the platform's own account
        if obj["kind"].endswith("Binding"):
            name = {**obj["metadata"], "name": "isthmus-site-of-pods"}
            made.do("apply", "-f", "-", given={**obj, "metadata": name, "subjects": [ACCOUNT]})
    yield made
    made.do("delete", "ijob", "--all", "-n", "optics")
    made.do("scale", "deployment", "isthmus", *SYSTEM, "--replicas=0")


def job(name: str, script: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "optics"}
    spec = {"command": ["sh", "-c", script], "placement": {"sites": ["here"]}}
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": meta, "spec": spec}


def test_control_planes_as_pods(cluster: Cluster) -> None:
    eventually(lambda: len(cluster.ready()) == 2, timeout=PATIENCE)
    first = eventually(cluster.leader, timeout=PATIENCE)
    kubernetes = {"namespace": "isthmus", "image": IMAGE}
    site = {"driver": "kubernetes", "kubernetes": kubernetes}
    for kind, name, spec in (("Tenant", "optics", {}), ("Site", "here", site)):
        given = {"apiVersion": "isthmus.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        cluster.do("apply", "-f", "-", given=given)
    eventually(lambda: "optics" in cluster.do("get", "namespaces", "-o", "name"), timeout=PATIENCE)

    cluster.do("apply", "-f", "-", given=job("hello", "echo ran in a pod"))
    eventually(lambda: cluster.phase("hello") == "Succeeded", timeout=PATIENCE)
    for pod in cluster.ready():  # whichever control plane is asked
        log = eventually(lambda pod=pod: cluster.log(pod, "hello"), timeout=PATIENCE)  # type: ignore[misc]
        assert log == "ran in a pod\n"

    cluster.do("apply", "-f", "-", given=job("long", "echo begun; sleep 8; echo over"))
    eventually(lambda: cluster.phase("long") == "Running", timeout=PATIENCE)
    cluster.do("delete", "pod", first, *SYSTEM, "--wait=false")
    second = eventually(lambda: (now := cluster.leader()) != first and now, timeout=PATIENCE)
    eventually(lambda: cluster.phase("long") == "Succeeded", timeout=PATIENCE)
    log = eventually(lambda: cluster.log(second, "long"), timeout=PATIENCE)
    assert log == "begun\nover\n", "once, and not twice"
    eventually(lambda: len(cluster.ready()) == 2, timeout=PATIENCE)
