"""kubectl for tests: the one on the machine, and the oldest that must work, from Debian's kubernetes-client.

Debian's package is fetched with apt and unpacked, not installed, into a cache folder of the user
(`$XDG_CACHE_HOME/isthmus`, else `~/.cache/isthmus`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.errors import Misconfigured

PACKAGE = "kubernetes-client"
_TIMEOUT = 600


@dataclass(frozen=True)
class Kubectl:
    """One kubectl program with its own home, so that nothing of the user's is read or cached."""

    program: Path
    home: Path
    kubeconfig: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, *args: str) -> list[str]:
        """The command line."""
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", *args]

    @property
    def environment(self) -> dict[str, str]:
        """The environment it runs in."""
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.home), **self.env}

    def run(self, *args: str, text: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run it, with `text` as its input; the caller looks at the exit code."""
        return subprocess.run(
            self.command(*args),
            input=text or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
            check=False,
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Run it in the background with its output in a pipe, for watches."""
        return subprocess.Popen(
            self.command(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )


def write_kubeconfig(path: Path, url: str, token: str, namespace: str = "default") -> Path:
    """A kubeconfig for one server and one token, readable by its owner only.

    kubectl keeps a token to itself when the server speaks plain HTTP, but sends what stands in the address.
    """
    if url.startswith("http://"):
        url = f"http://isthmus:{token}@{url.removeprefix('http://')}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "isthmus", "cluster": {"server": url}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "isthmus", "context": {"cluster": "isthmus", "user": "user", "namespace": namespace}}],
        "current-context": "isthmus",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


def programs() -> dict[str, Path]:
    """Every kubectl to test with, by a short name; raises Misconfigured when the old one cannot be had."""
    found = {"debian": debian_kubectl()}
    if installed := shutil.which("kubectl"):
        found["installed"] = Path(installed)
    return found


def debian_kubectl() -> Path:
    """kubectl from Debian's package, fetched at the first call."""
    folder = _cache() / PACKAGE
    program = folder / "usr" / "bin" / "kubectl"
    if program.exists():
        return program
    work = _cache() / f"{PACKAGE}.{os.getpid()}"
    work.mkdir(parents=True, exist_ok=True)
    try:
        if _run(["apt-get", "download", PACKAGE], work) and os.geteuid() == 0:
            _run(["apt-get", "update"], work)
            _run(["apt-get", "download", PACKAGE], work)
        packages = sorted(work.glob(f"{PACKAGE}_*.deb"))
        if not packages or _run(["dpkg", "-x", str(packages[-1]), str(work / "tree")], work):
            raise Misconfigured(
                f"Debian's package {PACKAGE} cannot be fetched; run `apt-get update` as root, "
                f"or put its kubectl at {program}"
            )
        if not program.exists():
            (work / "tree").rename(folder)
    finally:
        shutil.rmtree(work)
    return program


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "isthmus"


def _run(command: list[str], folder: Path) -> int:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT, check=False).returncode
    except FileNotFoundError:
        return 127
