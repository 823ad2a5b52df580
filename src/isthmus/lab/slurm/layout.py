"""Where everything of a Slurm lab is, and what it is to be like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab.layout import LabPlace
from isthmus.lab.processes import PATH

LONGEST = 80
"""Characters of the folder's path: a Unix socket below it must stay under 108."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """What a lab is like; kept in its folder, so that `up` again means the same."""

    accounting: bool = False
    """slurmdbd on MariaDB. Default off: it doubles the time to start."""
    energy: bool = False
    """Gives every node an energy counter, a text file that says how many joules it used. Default off."""
    backup: bool = False
    """A second slurmctld that takes over when the first is silent. Default off."""
    limits: bool = True
    """Hold jobs to their memory and end all they leave behind, by cgroups (version 1). Off where there are none."""
    release: str = ""
    """The Debian release whose Slurm is run, such as trixie. Default none: the Slurm of this machine."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Lines of slurm.conf that replace or join ours, such as MinJobAge=2."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node to be."""

    name: str
    cpus: int = 2
    memory_mb: int = 1000
    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    """Such as `board:akida:1` or `gpu:a100:2`."""

    @property
    def conf(self) -> str:
        """As slurmd is configured."""
        words = [f"CPUs={self.cpus}", f"RealMemory={self.memory_mb}"]
        words += [f"Feature={','.join(self.features)}"] if self.features else []
        words += [f"Gres={','.join(self.gres)}"] if self.gres else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class SlurmLabPlace(LabPlace):
    """A Slurm lab. Ports: 0 slurmctld, 1 slurmdbd, 2 MariaDB, 3 slurmrestd; the rest are free for tests."""

    interface = "isl"
    network = "10.211"
    ports = 20_000
    node_prefix = "lab"

    def __post_init__(self) -> None:
        if len(str(self.root)) > LONGEST:
            raise Misconfigured(
                f"{self.root} is too long for the sockets below it; choose one of {LONGEST} characters."
            )

    @property
    def conf(self) -> Path:
        """slurm.conf."""
        return self.root / "slurm.conf"

    @property
    def mark(self) -> tuple[str, str]:
        """What distinguishes the lab's processes from others. People who use the lab set SLURM_CONF themselves."""
        return "ISTHMUS_SLURM_LAB", str(self.root)

    @property
    def variables(self) -> dict[str, str]:
        """Which Slurm is meant."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def programs(self) -> Path:
        """Where the programs of another release are, if it runs one."""
        return self.root / "programs"

    @property
    def path(self) -> str:
        """Its own programs first."""
        return f"{self.programs}/bin:{PATH}"

    @property
    def shared(self) -> Path:
        """The file system that all nodes see."""
        return self.root / "shared"

    @property
    def munge(self) -> Path:
        """The socket of the lab's own munged."""
        return self.root / "munge" / "sock"

    @property
    def jwt_key(self) -> Path:
        """What slurmctld checks tokens with."""
        return self.root / "state" / "jwt.key"

    @property
    def rest_url(self) -> str:
        """Where slurmrestd answers."""
        return f"http://127.0.0.1:{self.port(3)}"

    @property
    def rest_socket(self) -> Path:
        """The other place where it answers."""
        return self.root / "run" / "rest" / "sock"

    def save(self, settings: LabSettings) -> None:
        """Keep the settings."""
        (self.root / "settings.json").write_text(json.dumps(asdict(settings), indent=1))

    def settings(self) -> LabSettings:
        """The settings it was made with."""
        return LabSettings(**json.loads((self.root / "settings.json").read_text()))
