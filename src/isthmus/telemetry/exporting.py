"""Series in the words of others: Prometheus' text form, and Influx line protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .journals import CPU, DEVICE, MEMORY, POWER, REPORTED

_NAMES = {
    CPU: ("isthmus_job_cpu_cores", "Cores that the job keeps busy."),
    MEMORY: ("isthmus_job_memory_bytes", "Memory that the job uses."),
    POWER: ("isthmus_job_power_watts", "Power that the job draws, measured or estimated."),
    DEVICE: ("isthmus_job_device_use_ratio", "How busy the job's devices are, from 0 to 1."),
}
_REPORTED = ("isthmus_job_reported", "The last value that the job reported under a name.")


class Labelled(NamedTuple):
    """Whose points they are."""

    namespace: str
    job: str
    site: str
    experiment: str = ""


def prometheus(jobs: Iterable[tuple[Labelled, Mapping[str, tuple[float, float]]]]) -> str:
    """The newest values; without times, since a scraper notes its own."""
    lines: dict[str, list[str]] = {}
    for labels, latest in jobs:
        own = _labels(labels)
        for name, (_, value) in sorted(latest.items()):
            if name in _NAMES:
                metric = _NAMES[name][0]
                lines.setdefault(name, []).append(f"{metric}{{{own}}} {value!r}")
            elif name.startswith(REPORTED):
                named = f'{own},name="{_quoted(name.removeprefix(REPORTED))}"'
                lines.setdefault(REPORTED, []).append(f"{_REPORTED[0]}{{{named}}} {value!r}")
    reported = []
    for name, (metric, help_) in (*_NAMES.items(), (REPORTED, _REPORTED)):
        if name in lines:
            reported += [f"# HELP {metric} {help_}", f"# TYPE {metric} gauge", *lines[name]]
    return "\n".join(reported) + "\n" if reported else ""


def _labels(labels: Labelled) -> str:
    found = labels._asdict().items()
    return ",".join(f'{name}="{_quoted(value)}"' for name, value in found if value or name != "experiment")


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def influx(labels: Labelled, series: Mapping[str, Iterable[tuple[float, float]]], since: float) -> str:
    """A run's points after a time, as lines with nanoseconds."""
    tags = "".join(f",{name}={_escaped(value)}" for name, value in labels._asdict().items() if value)
    lines = []
    for name, points in sorted(series.items()):
        key = _escaped(name.replace(".", "_", 1) if name.startswith(REPORTED) else name)
        lines += [f"isthmus_job{tags} {key}={value!r} {round(at * 1000)}000000\n" for at, value in points if at > since]
    return "".join(lines)


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in ",= \\" else c for c in text.replace("\n", " "))
