"""Which programs the lab needs, and the Debian packages that bring them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from isthmus.errors import Misconfigured

from .layout import LabSettings

_SLURM = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "slurmrestd": "slurmrestd",
}
_MACHINE = {
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
_SLURMDBD = {"slurmdbd": "slurmdbd"}
_DATABASE = {"mariadbd": "mariadb-server", "mariadb": "mariadb-client"}
_PLUGINS = {"auth_jwt.so": "slurm-wlm-jwt-plugin"}
_MYSQL = {"accounting_storage_mysql.so": "slurm-wlm-mysql-plugin"}
ONE_PLUGIN = (23, 11)
"""Since when slurmrestd's plugins are no longer named by versions."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(settings: LabSettings) -> list[str]:
    """The packages that are not there."""
    if settings.release:
        programs = _MACHINE | (_DATABASE if settings.accounting else {}) | {"dpkg-deb": "dpkg", "apt-get": "apt"}
        plugins = {}
    else:
        programs = _SLURM | _MACHINE | (_SLURMDBD | _DATABASE if settings.accounting else {})
        plugins = _PLUGINS | (_MYSQL if settings.accounting else {})
    lacking = [package for program, package in programs.items() if shutil.which(program, path=_PATH) is None]
    lacking += [package for plugin, package in plugins.items() if not _has_plugin(plugin)]
    return list(dict.fromkeys(lacking))


def check(settings: LabSettings) -> None:
    """Raise with the line to type if something is missing."""
    if os.geteuid() != 0:
        raise Misconfigured("The lab makes network namespaces and needs root; call it again with sudo.")
    if lacking := missing(settings):
        raise Misconfigured(
            f"The lab needs packages that are not installed: {', '.join(lacking)}. Install them with: "
            f"apt install --no-install-recommends {' '.join(lacking)}"
        )


def _has_plugin(name: str) -> bool:
    return any(Path("/usr/lib").glob(f"*/slurm*/{name}"))


def version(said: str) -> tuple[int, ...]:
    """The numbers of `slurm-wlm 22.05.8`."""
    return tuple(int(part) for part in re.findall(r"\d+", said)[:2])


def rest_plugins(version: tuple[int, ...], accounting: bool) -> list[str]:
    """What slurmrestd is to offer: up to 23.02 versions are plugins, later ones offer all they know."""
    names = ("slurmctld", "slurmdbd") if version >= ONE_PLUGIN else ("openapi/v0.0.38", "openapi/dbv0.0.38")
    return list(names if accounting else names[:1])
