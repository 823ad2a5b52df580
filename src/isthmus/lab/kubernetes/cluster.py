"""The whole lab: up, down, and what may be done to it meanwhile.

`up` is idempotent: it starts what does not run and leaves the rest alone. `down` ends every process that carries the
lab's mark, removes links, mounts and cgroups, puts back what kubelets changed on the machine, and keeps the files, so
that the next `up` finds the cluster again; with `erase` it removes the files too.
"""

from __future__ import annotations

import contextlib
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from isthmus.errors import IsthmusError, Misconfigured
from isthmus.lab import cabling, numbers, processes
from isthmus.lab.layout import LabStatus

from . import images, kernel, manifests, operator_image, packages
from .binaries import ensure
from .control_plane import DAEMONS, LabControlPlane
from .lab_client import LabClient
from .layout import BOARD, KubernetesLabPlace
from .nodes import KubernetesLabNode


class KubernetesLab:
    """A Kubernetes cluster in a folder."""

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self.place = KubernetesLabPlace.of(folder)
        self._given = binaries

    @property
    def binaries(self) -> Path:
        """The folder of the programs that the lab was started with."""
        return Path((self.place.root / "binaries").read_text())

    @property
    def control(self) -> LabControlPlane:
        """Its servers."""
        return LabControlPlane(self.place, self.binaries)

    @property
    def asker(self) -> LabClient:
        """Calls its API server."""
        return LabClient(self.control.url, self.place.keys)

    def up(self, nodes: int = 1) -> None:
        """Set it up if it is new, start what does not run, and see to it that nodes 1 to `nodes` are usable."""
        packages.check()
        binaries = ensure(self._given)
        if not self.place.exists:
            self._set_up()
        (self.place.root / "binaries").write_text(str(binaries))
        with machine_lock():
            numbers.hold(self.place)
            if not numbers.has_link(self.place):
                cabling.make_bridge(self.place)
            kernel.remember(self.place.number)
        if not self._images[0].exists():
            images.make(self._images[0])
        self._start_control()
        started = [self.node(index) for index in range(1, nodes + 1)]
        for node in started:
            node.start(self._loaded())
        for node in started:
            self.wait_ready(node.name)
        if started:
            self._give_board(started[0].name)
            self._wait_accounts()

    def _start_control(self) -> None:
        control = self.control
        control.start_api()
        control.start_controllers()
        for obj in (*manifests.grants(), *manifests.node_grants()):
            namespace = obj["metadata"].get("namespace", "")
            self.asker.create(manifests.PATHS[obj["kind"]].format(namespace=namespace), obj)
        control.authority.kubeconfig(self.place.site_kubeconfig, control.url, "isthmus", manifests.USER)

    # Images

    @property
    def _images(self) -> tuple[Path, Path]:
        """The archives of the images that every node has, and of Isthmus itself where it was made."""
        return self.place.root / "images.tar", self.place.root / "operator.tar"

    def _loaded(self) -> list[Path]:
        return [image for image in self._images if image.exists()]

    def load_operator(self, built: Path | None = None) -> str:
        """Give the nodes an image of this Isthmus, made here or built before, and a volume for its files; its name."""
        archive = self._images[1]
        if built is None:
            operator_image.make(archive)
        else:
            images.name_of(built)
            shutil.copyfile(built, archive)  # for nodes that start later
        for folder in sorted(self.place.root.glob("nodes/*")):
            if (node := self.node(int(folder.name.rpartition("n")[2]))).running:
                node.load(archive)
        shared = self.place.root / "volume"
        shared.mkdir(exist_ok=True)
        shared.chmod(0o1777)
        self.asker.create("/api/v1/persistentvolumes", manifests.volume(shared))
        return images.name_of(archive)

    # Nodes

    def node(self, index: int) -> KubernetesLabNode:
        """A node by its number, from 1."""
        return KubernetesLabNode(self.place, self.control, self.binaries, index)

    def start_node(self, index: int) -> None:
        """Start a node and wait until pods can run there."""
        self.node(index).start(self._loaded())
        self.wait_ready(self.node(index).name)

    def remove_node(self, index: int) -> None:
        """Take a node away at once, and notify the API server, as one does whose machine is gone for good."""
        node = self.node(index)
        node.remove()
        self.asker.ask(f"/api/v1/nodes/{node.name}", method="DELETE")

    def wait_ready(self, name: str, seconds: float = 90) -> None:
        """Wait until a node takes pods."""
        if not processes.wait(lambda: self.node_states().get(name) == "Ready", seconds):
            log = self.place.log(f"kubelet-{name}")
            raise Misconfigured(f"Node {name} is {self.node_states().get(name, 'not registered')}; see {log}.")

    def node_states(self) -> dict[str, str]:
        """Every node, and whether it is Ready."""
        try:
            found = self.asker.ask("/api/v1/nodes")["items"]
        except IsthmusError:
            return {}
        states = {}
        for node in found:
            ready = next((c["status"] for c in node["status"].get("conditions", ()) if c["type"] == "Ready"), "")
            tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", ()))
            states[node["metadata"]["name"]] = "Ready" if ready == "True" and not tainted else "NotReady"
        return states

    def _give_board(self, name: str) -> None:
        """A board that is not there, so that there is something to ask for."""
        patch = [{"op": "add", "path": f"/status/capacity/{BOARD.replace('/', '~1')}", "value": "1"}]
        self.asker.ask(f"/api/v1/nodes/{name}/status", patch, method="PATCH", kind="application/json-patch+json")
        label = {"metadata": {"labels": {"isthmus.dev/board": "akida"}}}
        self.asker.ask(f"/api/v1/nodes/{name}", label, method="PATCH", kind="application/merge-patch+json")

    def _wait_accounts(self) -> None:
        """Pods are refused until their namespace has its service account."""

        def there() -> bool:
            with contextlib.suppress(IsthmusError):
                self.asker.ask(f"/api/v1/namespaces/{manifests.NAMESPACE}/serviceaccounts/default")
                return True
            return False

        if not processes.wait(there, 60):
            raise Misconfigured(f"The controllers do not work; see {self.place.log('kube-controller-manager')}.")

    # Setting up and taking down

    def _set_up(self) -> None:
        root = self.place.root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o711)
        for name in ("run", "log", "nodes"):
            (root / name).mkdir(exist_ok=True)
        with machine_lock():
            number = free_number(root)
            self.place = replace(self.place, number=number)
            cabling.make_bridge(self.place)
        (root / "number").write_text(str(number))

    def down(self, *, erase: bool = False) -> None:
        """Stop everything and leave no link, mount, process, cgroup or setting; with `erase` no file either."""
        place = self.place
        if not place.exists:
            return
        control = LabControlPlane(place, place.root)
        for folder in sorted(place.root.glob("nodes/*")):
            index = int(folder.name.rpartition("n")[2])
            KubernetesLabNode(place, control, place.root, index).clean()
        control.stop()
        processes.kill_all(lambda: processes.all_of(place))
        if numbers.has_link(place):
            processes.call(place, "ip", "link", "delete", place.bridge)
        with machine_lock():
            kernel.restore(place.number)
        if erase:
            shutil.rmtree(place.root)
            with machine_lock():
                numbers.let_go(place)
            self.place = KubernetesLabPlace(place.root)

    def status(self) -> LabStatus:
        """What runs."""
        place = self.place
        names = list(DAEMONS) if place.exists else []
        for folder in sorted(place.root.glob("nodes/*")):
            names += [f"containerd-{folder.name}", f"kubelet-{folder.name}"]
        found = {name: pid for name in names if (pid := processes.pid_of(place, name))}
        running = "kube-apiserver" in found
        return LabStatus(place.root, running, found, self.node_states() if running else {})


def machine_lock() -> AbstractContextManager[None]:
    """Held while a lab takes or gives back what belongs to the machine."""
    return numbers.machine_lock("isthmus-lab-kubernetes")


def free_number(root: Path) -> int:
    """A number whose links and ports nobody uses."""
    return numbers.free_number(root, lambda number: KubernetesLabPlace(root, number))
