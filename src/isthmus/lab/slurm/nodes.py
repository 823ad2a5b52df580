"""One node: a namespace with a slurmd in it, that can be started, crashed and taken away."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from isthmus.errors import Invalid
from isthmus.lab import cabling, processes

from .config import gres_conf, gres_units
from .layout import LabSettings, NodeSpec, SlurmLabPlace

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_CGROUPS = Path("/sys/fs/cgroup")
# A /sys in which /sys/cray/pm_counters is the node's own folder: Slurm's only energy plugin that reads plain files.
_FAKE_SYS = """\
pm=$1; shift
mount --make-rprivate / && mount -t tmpfs -o mode=755 none /mnt && for s in /sys/*; do
  mkdir "/mnt/${s#/sys/}" && mount --rbind "$s" "/mnt/${s#/sys/}"; done && mkdir -p /mnt/cray/pm_counters &&
  mount --bind "$pm" /mnt/cray/pm_counters && mount --rbind /mnt /sys && umount -l /mnt && exec "$@"
"""


class SlurmLabNode:
    """A node of a lab."""

    def __init__(self, place: SlurmLabPlace, settings: LabSettings, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise Invalid(f"{name!r} is not a node's name: use a-z, 0-9 and -, and begin with a letter.")
        self.name = name
        self._place, self._settings = place, settings
        self.folder = place.node(name)
        self._net, self._uts = self.folder / "net", self.folder / "uts"

    @property
    def running(self) -> bool:
        """Whether its slurmd lives."""
        return bool(self._slurmd())

    def _slurmd(self) -> list[int]:
        return [pid for pid in self.processes() if _comm(pid) == "slurmd"]

    def processes(self) -> list[int]:
        """Everything that runs on it."""
        return processes.in_namespace(self._net)

    def start(self, spec: NodeSpec) -> None:
        """Start its slurmd; one that runs already is left alone."""
        if self.running:
            return
        (self.folder / "pm").mkdir(parents=True, exist_ok=True)
        if not self.processes():
            self.clean()
            self.make_machine()
            self._make_devices(spec)
        prefix = list(self.inside)
        if self._settings.energy:
            prefix += ["unshare", "--mount", "sh", "-c", _FAKE_SYS, "sh", str(self.folder / "pm")]
        words = ["slurmd", "-Z", "-N", self.name, "--conf", spec.conf]
        if self._settings.release:
            words += ["-d", str(self._place.programs / "bin" / "slurmstepd")]
        processes.call(self._place, *prefix, *words)
        (self.folder / "conf").write_text(spec.conf)

    @property
    def inside(self) -> tuple[str, ...]:
        """The words that run what follows on this machine."""
        return ("nsenter", f"--net={self._net}", f"--uts={self._uts}")

    def make_machine(self) -> None:
        """Its namespaces and its cable."""
        (self.folder / "pm").mkdir(parents=True, exist_ok=True)
        cabling.make_machine(self._place, self.name, self.host(), self._net, self._uts)
        self.meter(1)

    def host(self) -> int:
        """The last number of its address."""
        return cabling.host_of(self._place, self.folder)

    def _make_devices(self, spec: NodeSpec) -> None:
        """A device file, a twin of /dev/null, for every unit; and the lines of gres.conf that name them."""
        lines = []
        for name, kind, count in gres_units(spec):
            stem = self._place.root / "dev" / f"{self.name}-{name}{kind}"
            for index in range(count):
                unit = stem.with_name(f"{stem.name}{index}")
                if not unit.exists():
                    os.mknod(unit, stat.S_IFCHR | 0o666, os.makedev(1, 3))
                    unit.chmod(0o666)
            typed = f"Type={kind} " if kind else ""
            lines.append(f"NodeName={self.name} Name={name} {typed}File={stem}[0-{count - 1}]")
        (self.folder / "gres").write_text("".join(f"{line}\n" for line in lines))
        known = [
            line for file in sorted(self._place.root.glob("nodes/*/gres")) for line in file.read_text().split("\n")
        ]
        write_whole(self._place.root / "gres.conf", gres_conf(line for line in known if line))

    def meter(self, joules: float, watts: float = 0) -> None:
        """Set the node's energy counter."""
        for name, text in (("energy", f"{int(joules)} J\n"), ("power", f"{int(watts)} W\n")):
            write_whole(self.folder / "pm" / name, text)

    def crash(self) -> None:
        """End everything on it at once; slurmctld is not notified."""
        processes.kill_all(self.processes)

    def clean(self) -> None:
        """End everything on it and remove its namespaces, its cable and its cgroups."""
        processes.kill_all(self.processes)
        if (self.folder / "host").exists():
            cabling.remove_machine(self._place, self.host(), self._net, self._uts)
        for controller in _CGROUPS.glob(f"*/slurm_{self.name}"):
            processes.remove_cgroup(controller)
        self._place.pid_file(f"slurmd-{self.name}").unlink(missing_ok=True)

    def remove(self) -> None:
        """Clean, and remove what it kept."""
        self.clean()
        for unit in self._place.root.glob(f"dev/{self.name}-*"):
            unit.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self._place.root / "spool" / self.name, ignore_errors=True)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def write_whole(path: Path, text: str) -> None:
    """Replace a file so that nobody ever sees half of it."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)
