"""What a run of this machine has used up to now: from its control group, or by adding up its processes.

The supervisor asks while the run goes on. With control groups that is four small reads; without, one for each process
of the run. Where a board's driver tells how busy it is or what it draws (`gpu_busy_percent`, hwmon), that is read too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isthmus.engines.local import cgroups
from isthmus.engines.metering import Power, RaplMeter, estimate, machine_cpu_seconds, share_of_energy
from isthmus.engines.sampling import Reading

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BUSY = ("class/drm/card*/device/gpu_busy_percent", 100.0), ("devices/platform/*gpu*/load", 1000.0)
_WATTS = "class/drm/card*/device/hwmon/hwmon*/power1_average", "class/drm/card*/device/hwmon/hwmon*/power1_input"


class Boards:
    """Meters of accelerators, where drivers offer them."""

    def __init__(self, system: Path = Path("/sys")) -> None:
        self._busy = [(path, full) for pattern, full in _BUSY for path in sorted(system.glob(pattern))]
        watts = [sorted(system.glob(pattern)) for pattern in _WATTS]
        self._watts = watts[0] or watts[1]

    def use(self) -> float | None:
        """How busy they are together, from 0 to 1; None if nobody says."""
        found = [min(1.0, value / full) for path, full in self._busy if (value := _number(path)) is not None]
        return sum(found) / len(found) if found else None

    def watts(self) -> float | None:
        """What they draw together."""
        found = [value / 1e6 for path in self._watts if (value := _number(path)) is not None]
        return sum(found) if found else None


class UsageMeter:
    """Reads one run."""

    def __init__(
        self,
        group: cgroups.Group,
        rapl: RaplMeter,
        *,
        power: Mapping[str, Power],
        devices: Mapping[str, Sequence[str]],
        cpus: float,
        boards: Boards | None = None,
    ) -> None:
        self._group, self._rapl = group, rapl
        self._power, self._devices, self._cpus = power, devices, cpus
        self._boards = boards if any(name != "cpu" for name in devices) else None
        self._at = 0.0
        self._cpu = 0.0
        self._machine = machine_cpu_seconds() if rapl.present else 0.0
        self._rapl_joules = rapl.joules
        self._joules = 0.0

    def read(self, elapsed: float, output: Path) -> Reading:
        """What the run has used since it began, `elapsed` seconds ago."""
        cpu, memory = cgroups.cpu_seconds(self._group), cgroups.working_set(self._group)
        if cpu is None or memory is None:
            of_processes = processes_usage(os.getpid())
            cpu, memory = of_processes[0] if cpu is None else cpu, of_processes[1] if memory is None else memory
        joules, estimated = self._energy(cpu, elapsed)
        use = self._boards.use() if self._boards else None
        return Reading(cpu, memory, joules, estimated, use, _size(output))

    def _energy(self, cpu: float, elapsed: float) -> tuple[float | None, bool]:
        if not self._rapl.present:
            return estimate(self._power, self._devices, self._cpus, elapsed, cpu), True
        self._rapl.sample()
        machine, rapl = machine_cpu_seconds(), self._rapl.joules
        self._joules += share_of_energy(rapl - self._rapl_joules, cpu - self._cpu, machine - self._machine)
        if self._boards and (watts := self._boards.watts()) is not None:
            self._joules += watts * (elapsed - self._at)
        self._at, self._cpu, self._machine, self._rapl_joules = elapsed, cpu, machine, rapl
        return self._joules, False


def processes_usage(ancestor: int) -> tuple[float, int]:
    """Cpu seconds and resident memory of everything a process begot, those that ended included."""
    cpu, memory = 0.0, 0
    for pid in _descendants(ancestor):
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue  # it has ended since
        fields = stat[stat.rindex(b")") + 2 :].split()
        cpu += sum(int(ticks) for ticks in fields[11:15]) / _TICKS
        memory += int(fields[21]) * _PAGE
    return cpu, memory


def _descendants(ancestor: int) -> Iterable[int]:
    waiting = [ancestor]
    while waiting:
        pid = waiting.pop()
        try:
            with os.scandir(f"/proc/{pid}/task") as threads:
                children = b" ".join(Path(f"{thread.path}/children").read_bytes() for thread in threads)
        except OSError:
            continue
        for child in map(int, children.split()):
            yield child
            waiting.append(child)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
