"""Tables: profiles, prices and instances as CSV files, read with clear complaints.

- a price table: machine (or VMtype), gpu_type (GPUtype), gpus (nGPUs), price (cost) in dollars per hour, and
  optionally power in watts;
- a profile table: job, gpu_type, gpus, seconds;
- an instance: a folder with `jobs.csv` (job, submission, deadline, weight), `times.csv` (job, vm, gpu_type, gpus,
  vm_gpus, vm_price, seconds) and `nodes.csv` (node).

Other columns are passed over.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from isthmus.errors import Invalid, NotFound
from isthmus.scheduling.deadlines.models import CostObjective, DeadlineJob, MachineType, Overheads, RuntimeProfile

from .simulating import Instance

_IN_HOUSE = "in-house"
_INSTANCE = ("jobs.csv", "times.csv", "nodes.csv")


class _Row:
    """One line of a table, with its number for complaints."""

    def __init__(self, where: str, values: dict[str, str]) -> None:
        self._where, self._values = where, values

    def text(self, *names: str) -> str:
        for name in names:
            if (value := self._values.get(name.lower())) is not None and value.strip():
                return value.strip()
        raise Invalid(f"{self._where}: there is no value for {names[0]}; add that column or fill it in")

    def number(self, *names: str) -> float:
        text = self.text(*names)
        try:
            return float(text)
        except ValueError:
            raise Invalid(f"{self._where}: {names[0]} is {text!r}, which is not a number") from None

    def whole(self, *names: str) -> int:
        number = self.number(*names)
        if not number.is_integer():
            raise Invalid(f"{self._where}: {names[0]} is {number}, which is not a whole number")
        return int(number)

    def has(self, name: str) -> bool:
        return bool(self._values.get(name.lower(), "").strip())

    def __str__(self) -> str:
        return self._where


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            for number, row in enumerate(reader, start=2):
                yield _Row(f"{path}, line {number}", {str(k).strip().lower(): v or "" for k, v in row.items()})
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}; check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(f"{path} is not a CSV file: {error}") from None


def shipped(name: str) -> Path:
    """A table of our own: `machines.csv` or `profiles.csv`. Made up, but with the shape of real ones."""
    return Path(str(files(__package__) / name))


def read_prices(path: Path, *, in_house: bool = False) -> tuple[MachineType, ...]:
    """A catalogue. Servers whose name begins with In-house are left out unless asked for, as is published."""
    found = []
    for row in _rows(path):
        name = row.text("machine", "VMtype", "vm")
        if in_house or not name.lower().startswith(_IN_HOUSE):
            power = row.number("power") if row.has("power") else 0.0
            device, devices = row.text("gpu_type", "GPUtype"), row.whole("gpus", "nGPUs")
            found.append(MachineType(name, device, devices, row.number("price", "cost"), power))
    if not found:
        raise Invalid(f"{path} names no machine")
    return tuple(found)


def read_profiles(path: Path, catalogue: Sequence[MachineType]) -> list[RuntimeProfile]:
    """The profiles of the jobs in a table that a catalogue can run."""
    types = {kind.device for kind in catalogue}
    times: dict[str, dict[tuple[str, int], float]] = {}
    for row in _rows(path):
        device = row.text("gpu_type", "GPUtype")
        if device in types:
            _note(times.setdefault(row.text("job"), {}), row, device)
    if not times:
        raise Invalid(f"{path} has no run time on any device of the price table ({', '.join(sorted(types))})")
    return [RuntimeProfile(seconds) for seconds in times.values()]


def find_instances(folder: Path) -> list[Path]:
    """The folder itself, or those below it that hold an instance."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}; give one with {', '.join(_INSTANCE)}")
    found = [folder] if (folder / "jobs.csv").exists() else sorted(p.parent for p in folder.rglob("jobs.csv"))
    if not found:
        raise Invalid(f"neither {folder} nor a folder below it holds an instance ({', '.join(_INSTANCE)})")
    return found


def read_instance(folder: Path, overheads: Overheads, objective: CostObjective) -> tuple[Instance, list[str]]:
    """An instance from its folder, and which of its jobs were left out, and why."""
    catalogue: dict[tuple[str, str], MachineType] = {}
    times: dict[str, dict[tuple[str, int], float]] = {}
    seen: dict[tuple[str, str, int], float] = {}
    odd: dict[str, str] = {}
    for row in _rows(folder / "times.csv"):
        kind = _machine(row)
        if catalogue.setdefault((kind.name, kind.device), kind) != kind:
            raise Invalid(f"{row}: {kind.name} was said before to have other devices or another price; which is right?")
        job, count, seconds = row.text("job"), row.whole("gpus"), row.number("seconds")
        if count > kind.devices:
            raise Invalid(f"{row}: {count} devices on {kind.name}, which has {kind.devices}")
        if seen.setdefault((job, kind.name, count), seconds) != seconds:
            odd[job] = f"{row}: {seconds:g} s on {count} of {kind.name}, but {seen[job, kind.name, count]:g} s before"
        mine = times.setdefault(job, {})
        # What a machine has beside the devices may slow a job down; what counts on is the slowest.
        mine[kind.device, count] = max(seconds, mine.get((kind.device, count), 0.0))
    jobs, left_out = _jobs(folder, times, odd)
    nodes = tuple(row.text("node") for row in _rows(folder / "nodes.csv"))
    if not jobs or not nodes or len(set(nodes)) < len(nodes):
        raise Invalid(f"{folder}: jobs.csv and nodes.csv must each name something, and no node twice")
    kinds = tuple(sorted(catalogue.values(), key=lambda kind: (kind.device, kind.devices, kind.name)))
    return Instance(jobs, nodes, kinds, overheads, objective), left_out


def _machine(row: _Row) -> MachineType:
    power = row.number("vm_power") if row.has("vm_power") else 0.0
    return MachineType(row.text("vm"), row.text("gpu_type"), row.whole("vm_gpus"), row.number("vm_price"), power)


def _jobs(
    folder: Path, times: dict[str, dict[tuple[str, int], float]], odd: dict[str, str]
) -> tuple[tuple[DeadlineJob, ...], list[str]]:
    """The jobs that have a profile, and what is wrong with the others."""
    shared: dict[RuntimeProfile, RuntimeProfile] = {}
    jobs, left_out = [], []
    for row in _rows(folder / "jobs.csv"):
        name = row.text("job")
        if name not in times:
            left_out.append(f"{name} was left out: it has no run time in times.csv")
        elif name in odd:
            left_out.append(f"{name} was left out: its run times contradict each other ({odd[name]})")
        else:
            when = row.number("submission"), row.number("deadline"), row.number("weight")
            try:
                profile = RuntimeProfile(times[name])
                jobs.append(DeadlineJob(name, *when, shared.setdefault(profile, profile)))
            except Invalid as error:
                left_out.append(f"{name} was left out: {error}")
    return tuple(jobs), left_out


def _note(times: dict[tuple[str, int], float], row: _Row, device: str) -> None:
    """Take down a run time; two that contradict each other are refused."""
    key, seconds = (device, row.whole("gpus")), row.number("seconds")
    if times.setdefault(key, seconds) != seconds:
        raise Invalid(
            f"{row}: {row.text('job')} takes {seconds:g} s on {key[1]} x {device}, but {times[key]:g} s was said before"
        )
