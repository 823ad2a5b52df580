"""Limits through cgroups, version 1 and 2: what this machine lets us use, the plan for a run, and carrying it out.

`detect` looks once, when the engine opens: it tries to make a group of our own below the one we live in, and (as
root, version 2) at the top. What can be made and limited is used; the rest is said in the inventory. `plan` is pure:
it names folders and values. The supervisor, which knows nothing of versions, carries the plan out.

Version 2 allows limits only in groups whose parent holds no processes. A service with a delegated group therefore
moves itself into a leaf first, when it is alone in its group.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isthmus.engines.local.processes import send
from isthmus.engines.metering import memory_in_use

PERIOD = 100_000
_WANTED = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where groups may be made. `homes` maps each usable controller to a folder of ours; version 0 means none."""

    version: int = 0
    homes: dict[str, Path] = field(default_factory=dict)

    def can(self, controller: str) -> bool:
        """Whether this controller may be used."""
        return controller in self.homes

    def describe(self, controller: str) -> str:
        """For the inventory; empty if it cannot be used."""
        return f"cgroup v{self.version}" if self.can(controller) else ""


@dataclass(frozen=True, slots=True)
class Group:
    """The plan of one run's groups, as plain data."""

    folders: list[str] = field(default_factory=list)
    writes: list[tuple[str, str, bool]] = field(default_factory=list)
    """File, value, and whether the run may not start without it."""
    oom: str = ""
    peak: str = ""
    cpu: str = ""
    kill: str = ""
    leave_homes: bool = True
    """Whether the folders above stay when the run is over: in version 2 they carry settings."""

    def to_json(self) -> dict[str, Any]:
        """As it stands in the run's spec."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Group:
        """As it was written."""
        return cls(**data)


def detect(name: str, system: Path = Path("/"), *, superuser: bool) -> Cgroups:
    """Find out, by trying, which controllers we may use. `name` is that of our own group."""
    try:
        mounts = (system / "proc/self/mounts").read_text()
        own = (system / "proc/self/cgroup").read_text()
    except OSError:
        return Cgroups()
    homes = {
        controller: home
        for controller, base in v1_bases(mounts, own).items()
        if (home := _make_home(base / name)) is not None
    }
    for home in homes.values():
        with contextlib.suppress(OSError):
            home.rmdir()  # made again by each run: a platform that is gone leaves nothing behind
    if "memory" in homes or "cpu" in homes:
        return Cgroups(1, homes)
    for base in v2_bases(mounts, own, superuser=superuser):
        if usable := _open_v2(base / name):
            return Cgroups(2, dict.fromkeys(usable, base / name))
    return Cgroups()


def v1_bases(mounts: str, own: str) -> dict[str, Path]:
    """Our own group in each version 1 hierarchy."""
    places = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            places[controller] = path
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = line.split(" ")
        if kind == "cgroup":
            for controller in {*_WANTED, "cpuacct"} & set(options.split(",")) & places.keys():
                base = Path(mount) / places[controller].lstrip("/")
                # In a container the path may be the host's, while the mount already is our own group.
                found[controller] = base if base.is_dir() else Path(mount)
    return found


def v2_bases(mounts: str, own: str, *, superuser: bool) -> list[Path]:
    """Groups below which ours may be made: the one we live in, and for root the top."""
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), "/")
    for line in mounts.splitlines():
        _, mount, kind, *_ = line.split(" ")
        if kind == "cgroup2":
            base = Path(mount) / path.lstrip("/")
            top = [Path(mount)] if superuser else []
            return list(dict.fromkeys([base, *top]))
    return []


def _make_home(home: Path) -> Path | None:
    try:
        home.mkdir(exist_ok=True)
    except OSError:
        return None
    return home if os.access(home, os.W_OK) else None


def _open_v2(home: Path) -> list[str]:
    """Make our group and have its parent and itself pass the controllers on; those that they do."""
    available = _words(home.parent / "cgroup.controllers")
    wanted = [controller for controller in _WANTED if controller in available]
    if not wanted or _make_home(home) is None:
        return []
    if not _pass_on(home.parent, wanted) and not _step_aside(home.parent, wanted):
        with contextlib.suppress(OSError):
            home.rmdir()
        return []
    _pass_on(home, wanted)
    return [controller for controller in wanted if controller in _words(home / "cgroup.subtree_control")]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _pass_on(group: Path, controllers: Sequence[str]) -> bool:
    missing = [c for c in controllers if c not in _words(group / "cgroup.subtree_control")]
    if missing:
        try:
            _write(group / "cgroup.subtree_control", " ".join(f"+{c}" for c in missing))
        except OSError:
            return False
    return True


def _step_aside(group: Path, controllers: Sequence[str]) -> bool:
    """Move this process into a leaf, if it is alone in its group, so that the group may have limited children."""
    if _words(group / "cgroup.procs") != [str(os.getpid())]:
        return False
    leaf = group / "control"
    try:
        leaf.mkdir(exist_ok=True)
        _write(leaf / "cgroup.procs", str(os.getpid()))
    except OSError:
        return False
    return _pass_on(group, controllers)


def plan(cgroups: Cgroups, run_id: str, *, milli_cpus: int, memory_bytes: int, max_processes: int) -> Group | None:
    """What to make for one run; None where cgroups cannot be used."""
    if not cgroups.version:
        return None
    places = {controller: home / run_id for controller, home in cgroups.homes.items()}
    quota = max(1000, milli_cpus * PERIOD // 1000)
    folders = sorted({str(place) for place in places.values()})
    writes: list[tuple[str, str, bool]] = []
    if place := places.get("pids"):
        writes.append((f"{place}/pids.max", str(max_processes), False))
    if cgroups.version == 1:
        if place := places.get("cpu"):
            writes.append((f"{place}/cpu.cfs_period_us", str(PERIOD), True))
            writes.append((f"{place}/cpu.cfs_quota_us", str(quota), True))
        if (place := places.get("memory")) and memory_bytes:
            writes.append((f"{place}/memory.limit_in_bytes", str(memory_bytes), True))
            # With swap counted too, where the kernel does: the limit is on what the job uses, wherever it lies.
            writes.append((f"{place}/memory.memsw.limit_in_bytes", str(memory_bytes), False))
        memory, cpu = places.get("memory"), places.get("cpuacct")
        return Group(
            folders,
            writes,
            oom=f"{memory}/memory.oom_control" if memory else "",
            peak=f"{memory}/memory.max_usage_in_bytes" if memory else "",
            cpu=f"{cpu}/cpuacct.usage" if cpu else "",
            leave_homes=False,
        )
    group = folders[0]
    if "cpu" in places:
        writes.append((f"{group}/cpu.max", f"{quota} {PERIOD}", True))
    if "memory" in places and memory_bytes:
        writes.append((f"{group}/memory.max", str(memory_bytes), True))
        writes.append((f"{group}/memory.swap.max", "0", False))
        writes.append((f"{group}/memory.oom.group", "1", False))
    memory_there = "memory" in places
    return Group(
        folders,
        writes,
        oom=f"{group}/memory.events" if memory_there else "",
        peak=f"{group}/memory.peak" if memory_there else "",
        cpu=f"{group}/cpu.stat",
        kill=f"{group}/cgroup.kill",
    )


def create(group: Group) -> None:
    """Make the groups and set the limits."""
    for folder in group.folders:
        _make(Path(folder))
    for path, value, required in group.writes:
        try:
            _write(Path(path), value)
        except OSError:
            if required:
                raise


def _make(folder: Path) -> None:
    for _ in range(50):
        # The run before us may just be taking the folder above away.
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir(parents=True, exist_ok=True)
            return
    folder.mkdir(parents=True, exist_ok=True)


def enter(group: Group) -> None:
    """Put this process, which has one thread, into the groups.

    Version 1 can also move a thread, which for the caller itself needs no machine-wide lock: a twentieth of the time.
    """
    for folder in group.folders:
        threads = Path(folder) / "tasks"
        _write(threads if threads.exists() else Path(folder) / "cgroup.procs", "0")


def members(group: Group) -> set[int]:
    """Who is in any of the groups."""
    return {int(word) for folder in group.folders for word in _words(Path(folder) / "cgroup.procs") if int(word) > 0}


def kill(group: Group) -> None:
    """End everybody in the groups."""
    if group.kill:
        with contextlib.suppress(OSError):
            _write(Path(group.kill), "1")
            return
    send(members(group), signal.SIGKILL)


def remove(group: Group) -> None:
    """Take the empty groups away; those that are not empty yet stay for a later call."""
    for folder in group.folders:
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
            if not group.leave_homes:
                Path(folder).parent.rmdir()


def oom_kills(group: Group) -> int:
    """How many processes were ended for want of memory."""
    for line in _lines(group.oom):
        if line[0] == "oom_kill":
            return int(line[1])
    return 0


def peak_memory(group: Group, seen: int = 0) -> int | None:
    """The most bytes that were in use at once, of which at least so many were seen; None if the kernel does not say."""
    lines = _lines(group.peak)
    if not lines:
        return None
    # Memory that processes share counts as files do, but is the job's own.
    kept = _statistic(group, "file", "total_cache") - _statistic(group, "shmem", "total_shmem")
    return memory_in_use(int(lines[0][0]), kept, seen)


def working_set(group: Group) -> int | None:
    """The bytes in use now, without files that the kernel merely keeps at hand; None if the kernel does not say."""
    if not group.peak:
        return None
    folder = Path(group.peak).parent
    for name in ("memory.current", "memory.usage_in_bytes"):
        if lines := _lines(str(folder / name)):
            return max(0, int(lines[0][0]) - _statistic(group, "inactive_file", "total_inactive_file"))
    return None


def _statistic(group: Group, name: str, old_name: str) -> int:
    """A number of memory.stat, by its name in cgroup 2, or in cgroup 1 that of the group with all below it."""
    found = {line[0]: int(line[1]) for line in _lines(str(Path(group.peak).parent / "memory.stat"))}
    return found.get(old_name, found.get(name, 0))


def cpu_seconds(group: Group) -> float | None:
    """Cpu time used; None if the kernel does not say."""
    for line in _lines(group.cpu):
        if len(line) == 1:
            return int(line[0]) / 1e9
        if line[0] == "usage_usec":
            return int(line[1]) / 1e6
    return None


def _lines(path: str) -> list[list[str]]:
    if not path:
        return []
    try:
        text = Path(path).read_text()
    except OSError:
        return []
    return [line.split() for line in text.splitlines() if line.strip()]


def _write(path: Path, value: str) -> None:
    # Never created: a file that is missing is a limit that is not there.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
