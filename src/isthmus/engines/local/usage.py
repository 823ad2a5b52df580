"""What a run of this machine has used up to now: from its control group, or by adding up its processes.

The supervisor asks while the run goes on. With control groups that is four small reads; without, one for each process
of the run. Energy and use come from the meters of the device classes, which a process beside the run reads
(`meter_process.py`), else from RAPL, and from drivers that report their board unasked (`gpu_busy_percent`, hwmon);
what none of them counts is estimated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isthmus.engines.local import cgroups
from isthmus.engines.local.meter_process import MeterProcess
from isthmus.engines.metering import Power, RaplMeter, estimate, machine_cpu_seconds, share_of_energy
from isthmus.engines.sampling import Reading

WHOLE_MACHINE = frozenset({"RAPL", "Hwmon"})
"""Sources that count everything on the machine, as `engines/meters.py` has them."""
ESTIMATED = "estimated"
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
        beside: MeterProcess | None = None,
        machine_began: float = 0.0,
    ) -> None:
        self._group, self._rapl, self._beside = group, rapl, beside
        self._power, self._devices, self._cpus = power, devices, cpus
        self._boards = boards if any(name != "cpu" for name in devices) else None
        self._at = self._cpu = 0.0
        self._machine = machine_began
        self._whole = self._shared = self._drawn = 0.0
        self._most_memory = 0

    def read(self, elapsed: float, output: Path) -> Reading:
        """What the run has used since it began, `elapsed` seconds ago."""
        cpu, memory = cgroups.cpu_seconds(self._group), cgroups.working_set(self._group)
        if cpu is None or memory is None:
            of_processes = processes_usage(os.getpid())
            cpu, memory = of_processes[0] if cpu is None else cpu, of_processes[1] if memory is None else memory
        self._most_memory = max(self._most_memory, memory)
        joules, source = self.energy(cpu, elapsed, live=True)
        if self._beside is not None and not self._beside.reported:
            joules = None  # what it will measure is not guessed
        use = self._beside.seen.use if self._beside else None
        if use is None and self._boards:
            use = self._boards.use()
        return Reading(cpu, memory, joules, source == ESTIMATED, use, _size(output))

    def peak_memory(self, largest_process: int) -> int:
        """The most bytes that were in use at once, as far as it is known; one process had so many."""
        found = cgroups.peak_memory(self._group, max(self._most_memory, largest_process))
        return largest_process if found is None else found

    def energy(self, cpu: float, elapsed: float, *, live: bool = False) -> tuple[float | None, str | None]:
        """Joules up to now, and where they come from: meters, as far as there are any, else the power models.

        A meter of the whole machine counts for other runs too: it is shared out by cpu time, unless all cpus are ours.
        """
        counted: dict[str, tuple[str, float]] = {}
        if self._beside is not None:
            self._beside.look()
            counted = dict(self._beside.joules(time.clock_gettime(time.CLOCK_BOOTTIME) if live else None))
        # Who names a meter wants what it measures; nothing that is guessed is mixed in.
        models = {} if counted else self._power
        self._rapl.sample()
        if self._rapl.present and "cpu" not in counted:
            counted["cpu"] = ("RAPL", self._rapl.joules)
        if of_all := [joules for source, joules in counted.values() if source in WHOLE_MACHINE]:
            self._share(sum(of_all), cpu)
        parts = [joules for source, joules in counted.values() if source not in WHOLE_MACHINE]
        sources = {source.lower() for source, _ in counted.values()}
        models = {name: power for name, power in models.items() if name not in counted}
        if self._boards and not counted.keys() & self._devices.keys() and (watts := self._boards.watts()) is not None:
            self._drawn += watts * (elapsed - self._at)
            models = {name: power for name, power in models.items() if name == "cpu"}
            parts.append(self._drawn)
            sources.add("hwmon")
        self._at, self._cpu = elapsed, cpu
        if (guessed := estimate(models, self._devices, self._cpus, elapsed, cpu)) is not None:
            return sum(parts) + self._shared + guessed, ESTIMATED
        return (sum(parts) + self._shared, "+".join(sorted(sources))) if sources else (None, None)

    def _share(self, joules: float, cpu: float) -> None:
        more, self._whole = joules - self._whole, joules
        before, self._machine = self._machine, machine_cpu_seconds()
        if self._cpus < len(os.sched_getaffinity(0)):
            more = share_of_energy(more, cpu - self._cpu, self._machine - before)
        self._shared += more


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
