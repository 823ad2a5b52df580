"""Where everything of a lab is: paths, addresses, ports and names. Pure but for reading the lab's number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from isthmus.errors import Misconfigured

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
        """As slurmd is told."""
        words = [f"CPUs={self.cpus}", f"RealMemory={self.memory_mb}"]
        words += [f"Feature={','.join(self.features)}"] if self.features else []
        words += [f"Gres={','.join(self.gres)}"] if self.gres else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a lab, and what follows from its number."""

    root: Path
    number: int = 0

    @classmethod
    def of(cls, folder: Path) -> Place:
        """The lab in a folder, set up or not."""
        root = folder.absolute()
        if len(str(root)) > LONGEST:
            raise Misconfigured(f"{root} is too long for the sockets below it; choose one of {LONGEST} characters.")
        try:
            return cls(root, int((root / "number").read_text()))
        except (FileNotFoundError, ValueError):
            return cls(root)

    @property
    def exists(self) -> bool:
        """Whether it was set up."""
        return self.number > 0

    @property
    def conf(self) -> Path:
        """slurm.conf; its path is what marks every process of the lab."""
        return self.root / "slurm.conf"

    @property
    def mark(self) -> tuple[str, str]:
        """What tells the lab's processes from others."""
        return "SLURM_CONF", str(self.conf)

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
    def bridge(self) -> str:
        """The network interface that joins the nodes."""
        return f"isl{self.number}"

    def link(self, host: int) -> str:
        """This end of a node's cable."""
        return f"{self.bridge}.{host}"

    def address(self, host: int) -> str:
        """Host 1 is this machine."""
        return f"10.211.{self.number}.{host}"

    def port(self, which: int) -> int:
        """0 slurmctld, 1 slurmdbd, 2 MariaDB, 3 slurmrestd; the rest are free for tests."""
        return 20_000 + self.number * 8 + which

    @property
    def rest_url(self) -> str:
        """Where slurmrestd answers."""
        return f"http://127.0.0.1:{self.port(3)}"

    def node_name(self, index: int) -> str:
        """Names are unique on the machine: Slurm names its cgroups by them alone."""
        return f"lab{self.number}n{index}"

    def node(self, name: str) -> Path:
        """The folder of a node."""
        return self.root / "nodes" / name

    def pid_file(self, name: str) -> Path:
        """Where a daemon writes its process id."""
        return self.root / "run" / f"{name}.pid"

    def log(self, name: str) -> Path:
        """Where a daemon writes its log."""
        return self.root / "log" / f"{name}.log"

    def save(self, settings: LabSettings) -> None:
        """Keep the settings."""
        (self.root / "settings.json").write_text(json.dumps(asdict(settings), indent=1))

    def settings(self) -> LabSettings:
        """The settings it was made with."""
        return LabSettings(**json.loads((self.root / "settings.json").read_text()))
