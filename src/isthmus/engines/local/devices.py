"""Devices of this machine: which units there are, and who has which.

Every unit that is given out is a small file, `units/<class>/<unit>`, that holds the id of its run. One lock covers
choosing units and making the run's folder appear, so a unit whose run has no folder, or has ended, is free: nobody
needs to give anything back, and a crash at any point leaves nothing taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus._kit.crashpoints import step
from isthmus.engines.meters import Metering
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass, LocalDevice

from .settings import DeclaredDevices

CPU_CLASS = "cpu"
_CLASS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TRAILING = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """All units of one class, each with its device files; what they share; how they are announced to the job."""

    units: Mapping[str, tuple[str, ...]]
    share: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grant:
    """The units that a run was given."""

    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    power: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    metering: Metering = field(default_factory=Metering)

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups that the device files are open to: the job joins them, its sandbox shows no other device."""
        found = {info.st_gid for path in self.paths if (info := os.stat(path)).st_mode & 0o060}
        return tuple(sorted(found - {0}))


def find_devices(
    classes: Iterable[DeviceClass], declared: Sequence[DeclaredDevices], cpus: int
) -> dict[str, DeviceKind]:
    """Look for the units of every class. What the site declares comes before what a pattern finds."""
    kinds = {CPU_CLASS: DeviceKind({str(n): () for n in range(cpus)})}
    by_name = {cls.name: cls.spec.local or LocalDevice() for cls in classes}
    for name, local in by_name.items():
        if name != CPU_CLASS and (paths := sorted({p for pattern in local.paths for p in _glob(pattern)})):
            kinds[name] = DeviceKind(_name_units(paths), *_shared(local))
    for entry in declared:
        one_each = len(entry.paths) == entry.count
        units = {str(n): (entry.paths[n],) if one_each else entry.paths for n in range(entry.count)}
        kinds[entry.device_class] = DeviceKind(units, *_shared(by_name.get(entry.device_class, LocalDevice())))
    if CPU_CLASS in by_name:
        kinds[CPU_CLASS] = DeviceKind(kinds[CPU_CLASS].units, *_shared(by_name[CPU_CLASS]))
    return kinds


def _glob(pattern: str) -> list[str]:
    return [str(path) for path in Path("/").glob(pattern.lstrip("/"))]


def _shared(local: LocalDevice) -> tuple[tuple[str, ...], dict[str, str]]:
    return tuple(sorted({p for pattern in local.share for p in _glob(pattern)})), dict(local.env)


def _name_units(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Units are called by the number their file ends with, as vendors do; else they are counted."""
    numbers = [match[1] if (match := _TRAILING.search(path)) else "" for path in paths]
    if "" in numbers or len(set(numbers)) < len(numbers):
        numbers = [str(n) for n in range(len(paths))]
    return {number: (path,) for number, path in sorted(zip(numbers, paths, strict=True), key=lambda p: int(p[0]))}


def check_devices(wanted: Mapping[str, int], kinds: Mapping[str, DeviceKind]) -> None:
    """Refuse what this machine could not give even if it were idle."""
    for name, count in wanted.items():
        there = len(kinds[name].units) if name in kinds else 0
        if not _CLASS_NAME.fullmatch(name) or count > there:
            raise EngineRefused(f"This machine has {there} of device class {name!r}; the job asks for {count}.")


def allocate(
    folder: Path, run_id: str, wanted: Mapping[str, int], kinds: Mapping[str, DeviceKind], holds: Callable[[str], bool]
) -> Grant:
    """Choose free units and mark them. The caller holds the lock; `holds` says whether a run still has its units."""
    units: dict[str, tuple[str, ...]] = {}
    paths: list[str] = []
    env: dict[str, str] = {}
    for name, count in wanted.items():
        if not count:
            continue
        kind = kinds[name]
        marks = folder / name
        step(marks.mkdir, exist_ok=True)
        free = [unit for unit in kind.units if _is_free(marks / unit, holds)]
        if len(free) < count:
            raise SiteUnavailable(f"Only {len(free)} of the {count} units of {name!r} that are needed are free now.")
        units[name] = tuple(free[:count])
        for unit in units[name]:
            step((marks / unit).write_text, run_id)
        own = [path for unit in units[name] for path in kind.units[unit]]
        paths += [*own, *kind.share]
        for variable, text in kind.env.items():
            env[variable] = text.replace("{units}", ",".join(units[name])).replace("{paths}", ",".join(own))
    return Grant(units, tuple(dict.fromkeys(paths)), env)


def _is_free(mark: Path, holds: Callable[[str], bool]) -> bool:
    try:
        owner = mark.read_text()
    except FileNotFoundError:
        return True
    return not holds(owner)
