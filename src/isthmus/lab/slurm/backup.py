"""A second slurmctld, on a machine of its own, that takes over when the first one is silent.

Both keep their state in the same folder. The second has a namespace like a node's, and a slurm.conf that differs in its
pid file and log only.
"""

from __future__ import annotations

from isthmus.errors import Misconfigured
from isthmus.lab import processes

from .layout import LabSettings, SlurmLabPlace
from .nodes import SlurmLabNode, write_whole

NAME = "slurmctld-backup"


class Backup:
    """The backup controller of a lab."""

    def __init__(self, place: SlurmLabPlace, settings: LabSettings) -> None:
        self._place, self._settings = place, settings
        self._machine = SlurmLabNode(place, settings, f"lab{place.number}backup")

    @property
    def host(self) -> str:
        """As slurm.conf names it, with its address."""
        return f"{self._machine.name}({self._place.address(self._machine.host())})"

    def start(self) -> None:
        """Start it and wait until it stands by."""
        place = self._place
        if processes.pid_of(place, NAME) is not None:
            return
        conf = place.root / "backup.conf"
        text = place.conf.read_text()
        for name in (place.pid_file, place.log):
            text = text.replace(str(name("slurmctld")), str(name(NAME)))
        write_whole(conf, text)
        if not self._machine.processes():
            self._machine.clean()
            self._machine.make_machine()
        processes.call(place, *self._machine.inside, "slurmctld", "-f", str(conf))
        if not processes.wait(self.stands_by, 30):
            raise Misconfigured(f"The backup slurmctld does not answer; see {place.log(NAME)}.")

    def stands_by(self) -> bool:
        """Whether it answers."""
        said = processes.call(self._place, "scontrol", "ping", check=False).stdout
        return any(self._machine.name in line and " UP" in line for line in said.splitlines())

    def in_charge(self) -> bool:
        """Whether it has taken over."""
        log = self._place.log(NAME)
        return log.exists() and "Running as primary controller" in log.read_text(errors="replace")
