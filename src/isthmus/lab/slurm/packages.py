"""Which programs the lab needs, and the Debian packages that bring them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from isthmus.errors import Misconfigured

_PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "slurmrestd": "slurmrestd",
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
_ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb": "mariadb-client"}
_PLUGINS = {"auth_jwt.so": "slurm-wlm-jwt-plugin", "openapi_v0_0_38.so": "slurmrestd"}
_MYSQL = {"accounting_storage_mysql.so": "slurm-wlm-mysql-plugin"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(accounting: bool) -> list[str]:
    """The packages that are not there."""
    programs = _PROGRAMS | (_ACCOUNTING if accounting else {})
    plugins = _PLUGINS | (_MYSQL if accounting else {})
    lacking = [package for program, package in programs.items() if shutil.which(program, path=_PATH) is None]
    lacking += [package for plugin, package in plugins.items() if not _has_plugin(plugin)]
    return list(dict.fromkeys(lacking))


def check(accounting: bool) -> None:
    """Raise with the line to type if something is missing."""
    if os.geteuid() != 0:
        raise Misconfigured("The lab makes network namespaces and needs root; call it again with sudo.")
    if lacking := missing(accounting):
        raise Misconfigured(
            f"The lab needs packages that are not installed: {', '.join(lacking)}. Install them with: "
            f"apt install --no-install-recommends {' '.join(lacking)}"
        )


def _has_plugin(name: str) -> bool:
    return any(Path("/usr/lib").glob(f"*/slurm*/{name}"))
