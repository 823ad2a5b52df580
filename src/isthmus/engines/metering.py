"""What a run used, and the energy of it. Standard library only: supervisors load this without the rest.

**RAPL** counts the energy of whole processor packages (and memory) in microjoules and wraps around, at 100 W about
every 40 minutes: a meter is sampled more often than that and adds up the differences. The machine's energy is
shared out by cpu time: a run that did a third of the work of all processors is given a third.

**Estimates** stand in where there is no meter. Of a class of device with a power model, each unit given to the run
counts as busy for as long as the run held it; processors count as busy for the cpu time that was used.

**Memory** is what the run itself held. The kernel's own peak of a control group counts files that it keeps at hand
(the page cache) as well, which cost the run nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
_CPU_CLASS = "cpu"


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of one unit of a class."""

    idle_watts: float
    busy_watts: float


def memory_in_use(peak: int | None, cache: int | None = None, seen: int | None = None) -> int | None:
    """The most bytes that a run held at once, as far as it is known.

    Of the kernel's `peak`, the `cache` that is still there when the processes are gone is taken off; what was `seen` in
    use while it ran stands, and is all there is where the kernel tells no peak.
    """
    return seen if peak is None else min(peak, max(seen or 0, peak - (cache or 0)))


class RaplMeter:
    """Adds up what the machine's energy counters counted since it was made."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = _rapl_zones(root)
        self._last: dict[Path, int] = {}
        self._micro = 0
        self._broken = False
        self.sample()

    @property
    def present(self) -> bool:
        """Whether there is a counter that may be read."""
        return bool(self._zones) and not self._broken

    @property
    def joules(self) -> float:
        """Since the meter was made."""
        return self._micro / 1e6

    def sample(self) -> None:
        """Read the counters; often enough that none wraps twice in between."""
        for zone, span in self._zones.items():
            count = _read_int(zone / "energy_uj")
            if count is None:
                self._broken = True
                return
            before = self._last.get(zone, count)
            self._micro += count - before if count >= before else count + span + 1 - before
            self._last[zone] = count


def _rapl_zones(root: Path) -> dict[Path, int]:
    """Packages, and the memory beside them, with the value each counter wraps at."""
    zones: dict[Path, int] = {}
    try:
        places = sorted(root.iterdir())
    except OSError:
        return zones
    for zone in places:
        if not zone.name.startswith("intel-rapl:"):
            continue
        try:
            label = (zone / "name").read_text().strip()
        except OSError:
            continue
        span = _read_int(zone / "max_energy_range_uj")
        readable = _read_int(zone / "energy_uj") is not None
        # Cores and graphics are part of their package, psys is all of it again; only memory comes on top.
        if span is not None and readable and (label.startswith("package") or label == "dram"):
            zones[zone] = span
    return zones


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def machine_cpu_seconds(proc: Path = Path("/proc")) -> float:
    """The cpu time that all processors together have spent working since boot."""
    fields = (proc / "stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def share_of_energy(joules: float, cpu_seconds: float, machine_seconds: float) -> float:
    """The part of the machine's energy that a run accounts for, by cpu time."""
    if machine_seconds <= 0:
        return 0.0
    return joules * min(1.0, max(0.0, cpu_seconds) / machine_seconds)


def estimate(
    power: Mapping[str, Power], devices: Mapping[str, Sequence[str]], cpus: float, elapsed: float, cpu_seconds: float
) -> float | None:
    """Joules by the power models of what the run was given; None if no model is known."""
    parts: list[float] = []
    if model := power.get(_CPU_CLASS):
        busy = min(max(0.0, cpu_seconds), cpus * elapsed) if cpus else cpu_seconds
        parts.append(model.idle_watts * (cpus * elapsed - busy) + model.busy_watts * busy)
    parts += [
        power[name].busy_watts * len(units) * elapsed
        for name, units in devices.items()
        if name != _CPU_CLASS and name in power
    ]
    return sum(parts) if parts else None
