"""Which programs the lab needs beside Kubernetes' own, and the Debian packages that bring them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab.processes import PATH

_PROGRAMS = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
}
_CNI = Path("/usr/lib/cni/bridge")


def missing() -> list[str]:
    """The packages that are not there."""
    lacking = [package for program, package in _PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    lacking += [] if _CNI.exists() else ["containernetworking-plugins"]
    return list(dict.fromkeys(lacking))


def check() -> None:
    """Raise with the line to type if something is missing."""
    if os.geteuid() != 0:
        raise Misconfigured("The lab makes namespaces and needs root; call it again with sudo.")
    if lacking := missing():
        raise Misconfigured(
            f"The lab needs packages that are not installed: {', '.join(lacking)}. Install them with: "
            f"apt install --no-install-recommends {' '.join(lacking)}"
        )
