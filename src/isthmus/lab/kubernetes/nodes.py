"""One node: a kubelet with its containerd, in namespaces of their own, that can be started, crashed and taken away.

The mount namespace has a private /run and /var/log: what containerd and the kubelet put at places that cannot be
chosen (sockets of shims, logs of pods) lies in the node's folder, and every mount is gone with the last process.
`nsenter` is used rather than `ip netns exec`, which would hide the cgroups.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from isthmus.errors import Misconfigured
from isthmus.lab import cabling, processes

from . import manifests
from .control_plane import LabControlPlane, last_lines, version
from .kernel import KUBELET
from .layout import SOCKET, KubernetesLabPlace

CGROUPS = Path("/sys/fs/cgroup")
# The holder keeps the mount namespace until containerd and the kubelet are in it.
_HOLDER = """\
mount --bind "$1/run" /run && mount --bind "$1/log" /var/log && mount --bind "$1/kubelet" /var/lib/kubelet &&
: >"$1/held" && exec sleep 2147483647
"""


class KubernetesLabNode:
    """A node of a lab."""

    def __init__(self, place: KubernetesLabPlace, control: LabControlPlane, binaries: Path, index: int) -> None:
        self.name, self.index = place.node_name(index), index
        self._place, self._control, self._binaries = place, control, binaries
        self.folder = place.node(self.name)
        self._net, self._uts = self.folder / "net", self.folder / "uts"
        self._host = index + 1

    @property
    def address(self) -> str:
        """Its address on the lab's bridge."""
        return self._place.address(self._host)

    @property
    def running(self) -> bool:
        """Whether its kubelet lives."""
        return processes.pid_of(self._place, f"kubelet-{self.name}") is not None

    def processes(self) -> list[int]:
        """Everything of it: what was started for it, and what runs in its pods."""
        marked = set(processes.all_of(_NodeMark(self._place, self.name)))
        marked.update(processes.in_namespace(self._net))
        for procs in CGROUPS.glob(f"*/{self.name}/**/cgroup.procs"):
            with contextlib.suppress(OSError):
                marked.update(int(word) for word in procs.read_text().split())
        return sorted(marked - {0, os.getpid()})

    def start(self, images: Sequence[Path]) -> None:
        """Start what does not run; the images are loaded when the runtime is new."""
        if self.running:
            return
        if self._holder() is None:
            self.clean()  # also of what an earlier lab of the same number left
            self._make_folders()
            self._make_namespaces()
            self._make_cgroups()
            self._write_files()
            self._start("holder", "unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _HOLDER, "sh",
                        str(self.folder))  # fmt: skip
            if not processes.wait((self.folder / "held").exists, 10):
                raise Misconfigured(f"{self.name}: no mount namespace: {last_lines(self._log('holder'))}")
        inside = self._inside()
        if processes.pid_of(self._place, f"containerd-{self.name}") is None:
            self._start("containerd", *inside, "containerd", "--config", str(self.folder / "containerd.toml"))
            for image in images:
                self.load(image)
        self._start("kubelet", *inside, *self._kubelet())

    def _holder(self) -> int | None:
        return processes.pid_of(self._place, f"holder-{self.name}")

    def _inside(self) -> list[str]:
        holder = self._holder()
        if holder is None:
            raise Misconfigured(f"{self.name} lost its namespaces; take the node down and start it again.")
        return ["nsenter", f"--target={holder}", "--mount", "--net", "--uts"]

    def _kubelet(self) -> list[str]:
        endpoint = f"unix://{SOCKET}"
        words = [
            str(self._binaries / "kubelet"), f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self.folder}/kubeconfig", f"--hostname-override={self.name}", f"--node-ip={self.address}",
            f"--container-runtime-endpoint={endpoint}", f"--root-dir={KUBELET}",
            f"--cert-dir={self.folder}/certificates", "--oom-score-adj=0",
            "--housekeeping-interval=2s",
        ]  # fmt: skip
        return [*words, "--container-runtime=remote"] if version(self._binaries) < (1, 24) else words

    def _start(self, program: str, *words: str) -> None:
        more = {"ISTHMUS_LAB_NODE": self.name}
        prefix = ("nsenter", f"--net={self._net}", f"--uts={self._uts}") if program == "holder" else ()
        processes.spawn(self._place, f"{program}-{self.name}", [*prefix, *words], more)

    def _log(self, program: str) -> Path:
        return self._place.log(f"{program}-{self.name}")

    def load(self, image: Path) -> None:
        """Give its runtime the images of an archive."""
        words = (*self._inside(), "ctr", "--address", SOCKET, "--namespace", "k8s.io")
        call = processes.call
        if not processes.wait(lambda: call(self._place, *words, "version", check=False).returncode == 0, 60):
            raise Misconfigured(f"containerd of {self.name} does not answer: {last_lines(self._log('containerd'))}")
        call(self._place, *words, "images", "import", str(image), seconds=300)

    # Making and removing

    def _make_folders(self) -> None:
        for name in ("run", "log", "kubelet", "cni", "certificates"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "run" / "netns").mkdir(exist_ok=True)
        (self.folder / "held").unlink(missing_ok=True)

    def _make_namespaces(self) -> None:
        place, call = self._place, processes.call
        cabling.make_machine(place, self.name, self._host, self._net, self._uts)
        inside = ("nsenter", f"--net={self._net}", "ip")
        call(place, *inside, "route", "add", "default", "via", place.address(1))
        # Where clouds describe a machine to itself. A kubelet asks there first, and would wait six seconds for nobody.
        call(place, *inside, "route", "add", "unreachable", "169.254.0.0/16")
        for rule in manifests.service_rules(self._control.url, self._host):
            call(place, "nsenter", f"--net={self._net}", "iptables", "--wait", "--table", "nat", "--append", *rule)

    def _make_cgroups(self) -> None:
        for controller in CGROUPS.iterdir():
            if not (controller / "cgroup.procs").exists():
                continue
            group = controller / self.name
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (controller / name).exists() and not (group / name).read_text().strip():
                    (group / name).write_text((controller / name).read_text())

    def _write_files(self) -> None:
        folder, authority = self.folder, self._control.authority
        (folder / "containerd.toml").write_text(manifests.containerd_toml(folder))
        conflist = manifests.cni_conflist(folder, self._host)
        (folder / "cni" / "10-lab.conflist").write_text(json.dumps(conflist))
        config = manifests.kubelet_yaml(self._place, folder, f"/{self.name}")
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(config))
        served = authority.issue(f"kubelet-{self.name}", self.name, hosts=[self.name, self.address])
        for source, name in zip(served, ("kubelet.crt", "kubelet.key"), strict=True):
            shutil.copyfile(source, folder / name)
            (folder / name).chmod(0o600)
        who, url = f"system:node:{self.name}", self._control.url
        authority.kubeconfig(folder / "kubeconfig", url, f"node-{self.name}", who, ["system:nodes"])

    def crash(self) -> None:
        """End everything on it at once; the API server is not notified."""
        processes.kill_all(self.processes, 30)

    def clean(self) -> None:
        """End everything on it and remove its namespaces, its cable, its cgroups and its mounts."""
        processes.kill_all(self.processes, 30)
        for program in ("holder", "containerd", "kubelet"):
            self._place.pid_file(f"{program}-{self.name}").unlink(missing_ok=True)
        cabling.remove_machine(self._place, self._host, self._net, self._uts)
        for group in CGROUPS.glob(f"*/{self.name}"):
            processes.remove_cgroup(group)

    def remove(self) -> None:
        """Clean, and remove what it kept."""
        self.clean()
        shutil.rmtree(self.folder, ignore_errors=True)


class _NodeMark:
    """The processes that were started for one node."""

    def __init__(self, place: KubernetesLabPlace, node: str) -> None:
        self._place, self.root, self.path = place, place.node(node), place.path
        self.mark, self.variables = ("ISTHMUS_LAB_NODE", node), place.variables

    def log(self, name: str) -> Path:
        return self._place.log(name)

    def pid_file(self, name: str) -> Path:
        return self._place.pid_file(name)
