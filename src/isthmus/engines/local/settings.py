"""Settings of the local engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Isolation = Literal["Required", "Preferred", "BestEffort", "None"]
Network = Literal["Auto", "Private", "Host", "None"]


@dataclass(frozen=True, slots=True)
class DeclaredDevices:
    """Devices that the administrator names, where looking for device files is not enough."""

    device_class: str
    count: int = 1
    """Units. Default 1."""
    paths: tuple[str, ...] = ()
    """Device files: as many as units (one each), or any other number (all for every unit). Default none."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """How the local engine runs jobs on this machine."""

    root: Path
    """Folder of all runs. On a local file system: locks and renames must be reliable."""
    owner: str = "site"
    """Whose the folder is, the uid of the site: of those who open it for one owner, only the last can begin runs."""
    cpus: float | None = None
    """Cpus to offer. Default: all that this process may use."""
    memory_bytes: int | None = None
    """Bytes of memory to offer. Default: nine tenths, so that the system and the platform keep some."""
    isolation: Isolation = "Preferred"
    """Whether jobs run in a sandbox. Preferred: where the machine can; where it cannot, only jobs of the tenant
    `default` run. BestEffort: jobs of all tenants run without a sandbox too. The inventory says what holds."""
    network: Network = "Auto"
    """What jobs see of the network. Private: one of their own, from which they reach others and nobody reaches them;
    it needs the sandbox and slirp4netns. Host: the machine's, its loopback too. None: a loopback of their own, which
    needs the sandbox. Default Auto: Private where the machine can, else Host: jobs download data and report results."""
    devices: tuple[DeclaredDevices, ...] = ()
    """Devices declared by the site. Default none: device files are looked for by the patterns of each class."""
    visible: tuple[Path, ...] = ()
    """Folders that jobs may read besides the system's own, such as /data. Default none: safe before convenient."""
    path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH of jobs. Default: the system's programs, whatever the control plane itself was started with."""
    programs: str = "/usr/local/bin:/usr/bin:/bin"
    """Where bubblewrap, setpriv and slirp4netns are looked for. Default: the system's; tests give their own."""
    max_processes: int = 4096
    """Processes and threads of one job, where cgroups can limit them. Default 4096: stops a fork bomb, not a job."""
    max_log_bytes: int = 2**30
    """Bytes of each log of a run; a longer one loses its middle. Default 1 GiB, and never more than a quarter of the
    space that is free when the run begins."""
    max_file_bytes: int = 0
    """Bytes of each file that a job writes, wherever it lies. Default 0: as many as the disk has."""
    max_disk_bytes: int = 0
    """Bytes that the working folder and /tmp of a run take on the disk; it is measured, and a run that takes more is
    ended. Default 0: as many as the tenant's storage quota. Never more than nine tenths of the free space."""
    max_output_bytes: int = 50 * 2**30
    """Bytes brought back from one run. Default 50 GiB: a sparse file may claim any size."""
    max_image_bytes: int = 50 * 2**30
    """Bytes of all unpacked images; beyond it, those that were not used for longest go. Default 50 GiB. A tenant's
    environments have the same limit."""
    package_index: str = ""
    """Where environments of Python packages get them from. Default: where the installer looks by itself."""
    wheels: str = ""
    """A folder of wheels that jobs see, for the same; without an index nothing else is asked. Default none."""
    registry_authorities: str = ""
    """Certificates (PEM) that registries are trusted by, beside those of the system. Default none."""
    rescan_seconds: float = 5.0
    """Seconds between looks at the folder itself, which find what no event reported. Default 5: rarely needed."""
    powercap: Path = field(default=Path("/sys/class/powercap"))
    """Where the kernel shows RAPL energy counters. Default: its usual place; tests give a tree of their own."""
    system: Path = field(default=Path("/"))
    """Where /proc is found for cgroup detection. Default /; tests give a tree of their own."""
