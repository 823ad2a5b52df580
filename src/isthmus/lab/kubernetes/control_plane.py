"""etcd, the API server, the controllers and the scheduler, each started if it does not run. Needs no root by itself.

The API server alone (with etcd) is what tests of stores want: `LabControlPlane(place, binaries, address="127.0.0.1")`,
then `start_api()`. Data is not flushed to disk: a lab that loses power is made anew.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from isthmus.errors import Misconfigured
from isthmus.lab import processes
from isthmus.lab.certificates import Authority

from .layout import SERVICES, KubernetesLabPlace
from .manifests import API_SERVICE

PATIENCE = 120.0
STOP_SECONDS = 3.0
"""An API server waits a minute for callers that are gone; nothing of a lab is lost by force."""
DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class LabControlPlane:
    """The servers of one lab."""

    def __init__(self, place: KubernetesLabPlace, binaries: Path, address: str | None = None) -> None:
        self.place, self._binaries = place, binaries
        self.address = address or place.address(1)
        for name in ("run", "log", "keys"):
            (place.root / name).mkdir(parents=True, exist_ok=True)
        self.authority = Authority(place.keys)

    @property
    def kubeconfig(self) -> Path:
        """With it one may do everything."""
        return self.place.kubeconfig

    @property
    def url(self) -> str:
        """Where the API server answers."""
        return f"https://{self.address}:{self.place.port(2)}"

    def start_api(self) -> None:
        """etcd and the API server; returns when it is ready."""
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        """The store of everything."""
        place = self.place
        if processes.pid_of(place, "etcd") is not None:
            return
        client, peer = (f"http://127.0.0.1:{place.port(which)}" for which in (0, 1))
        words = [
            "etcd", "--name", "lab", "--data-dir", str(place.root / "etcd"), "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"lab={peer}", "--unsafe-no-fsync", "--log-level", "warn",
        ]  # fmt: skip
        processes.spawn(place, "etcd", words)
        self._wait("etcd", f"{client}/health")

    def start_apiserver(self) -> None:
        """The API server; returns when it is ready, with a kubeconfig that may do everything."""
        place, keys = self.place, self.place.keys
        if processes.pid_of(place, "kube-apiserver") is None:
            hosts = ["127.0.0.1", API_SERVICE, "localhost", "kubernetes.default.svc"]
            hosts += [self.address] if self.address not in hosts else []
            server = self.authority.issue("apiserver", "kube-apiserver", hosts=hosts)
            caller = self.authority.issue("kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"])
            words = [
                str(self._binaries / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{place.port(0)}",
                f"--bind-address={self.address}", f"--advertise-address={self.address}",
                f"--secure-port={place.port(2)}", f"--client-ca-file={keys}/ca.crt", f"--tls-cert-file={server[0]}",
                f"--tls-private-key-file={server[1]}", f"--service-account-key-file={keys}/sa.pub",
                f"--service-account-signing-key-file={keys}/sa.key",
                "--service-account-issuer=https://kubernetes.default.svc", f"--service-cluster-ip-range={SERVICES}",
                "--authorization-mode=Node,RBAC", "--kubelet-preferred-address-types=InternalIP",
                "--endpoint-reconciler-type=none", f"--kubelet-client-certificate={caller[0]}",
                f"--kubelet-client-key={caller[1]}", f"--kubelet-certificate-authority={keys}/ca.crt",
            ]  # fmt: skip
            processes.spawn(place, "kube-apiserver", words)
        self.authority.kubeconfig(place.kubeconfig, self.url, "admin", "admin", ["system:masters"])
        self._wait("kube-apiserver", f"{self.url}/readyz")

    def compact(self) -> None:
        """Let etcd forget the past: once the API server is restarted, watches that begin there are answered 410."""
        client = f"http://127.0.0.1:{self.place.port(0)}/v3/kv"
        now = self._etcd(f"{client}/range", {"key": "AA==", "limit": "1"})["header"]["revision"]
        self._etcd(f"{client}/compaction", {"revision": now})

    @staticmethod
    def _etcd(url: str, body: dict[str, str]) -> Any:
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:  # noqa: S310 - the lab's own
            return json.loads(answer.read())

    def start_controllers(self, *, grace_seconds: int = 10) -> None:
        """The controllers (jobs, garbage, nodes, namespaces) and the scheduler.

        A node that is silent for `grace_seconds` counts as lost; ordinary clusters wait for 40.
        """
        place, keys = self.place, self.place.keys
        for name, port in (("kube-controller-manager", 3), ("kube-scheduler", 4)):
            if processes.pid_of(place, name) is not None:
                continue
            config = keys / f"{name}.kubeconfig"
            self.authority.kubeconfig(config, self.url, name, f"system:{name}")
            words = [str(self._binaries / name), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}"]
            words += [f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", "--leader-elect=false"]
            words += [f"--secure-port={place.port(port)}"]
            if version(self._binaries) < (1, 24):
                words.append("--port=0")
            if name == "kube-controller-manager":
                words += [
                    "--use-service-account-credentials", f"--service-account-private-key-file={keys}/sa.key",
                    f"--root-ca-file={keys}/ca.crt", f"--cluster-signing-cert-file={keys}/ca.crt",
                    f"--cluster-signing-key-file={keys}/ca.key", f"--node-monitor-grace-period={grace_seconds}s",
                    "--node-monitor-period=1s",
                ]  # fmt: skip
            processes.spawn(place, name, words)

    def stop(self, name: str | None = None, *, kill: bool = False) -> None:
        """Stop one server, or all, the last started first."""
        for daemon in reversed(DAEMONS):
            if name in (None, daemon):
                if kill and (pid := processes.pid_of(self.place, daemon)) is not None:
                    processes.kill_all(lambda pid=pid, daemon=daemon: self._left(daemon, pid))  # type: ignore[misc]
                processes.stop(self.place, daemon, STOP_SECONDS)

    def _left(self, daemon: str, pid: int) -> list[int]:
        return [pid] if processes.pid_of(self.place, daemon) == pid else []

    def _wait(self, name: str, url: str) -> None:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        context.load_cert_chain(*self.authority.issue("admin", "admin", ["system:masters"]))

        def answers() -> bool:
            if processes.pid_of(self.place, name) is None:
                raise Misconfigured(f"{name} ended at once: {last_lines(self.place.log(name))}")
            try:
                with urllib.request.urlopen(  # noqa: S310 - the lab's own server
                    url, timeout=5, context=context if url.startswith("https") else None
                ) as answer:
                    return bool(answer.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        if not processes.wait(answers, PATIENCE):
            raise Misconfigured(f"{name} does not answer; see {self.place.log(name)}.")


def version(binaries: Path) -> tuple[int, int]:
    """The version of the programs, such as (1, 20)."""
    said = subprocess.run([binaries / "kubelet", "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"v(\d+)\.(\d+)", said)
    if match is None:
        raise Misconfigured(f"{binaries / 'kubelet'} does not report its version: {said[:200]!r}")
    return int(match[1]), int(match[2])


def last_lines(log: Path, count: int = 3) -> str:
    """The end of a log, in one line."""
    lines = log.read_text(errors="replace").splitlines()[-count:] if log.exists() else []
    return " | ".join(lines)[-600:] or "it said nothing"
