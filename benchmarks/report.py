"""What was measured, and the page that tells it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass
class Figure:
    """One line of the page."""

    what: str
    measured: str
    baseline: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


@dataclass
class Section:
    """One part of the page."""

    title: str
    about: str
    figures: list[Figure] = field(default_factory=list)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}"


def page(sections: list[Section]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`. Each figure is a ratio to a baseline measured in the same run, because machines differ",
        "and are noisy; absolute numbers are of this machine only. Load and server share its cores.",
        "Jobs with deadlines have [a page of their own](benchmarks-scheduling.md).",
        "",
        f"Machine: {machine()}. Date: {datetime.now(UTC):%Y-%m-%d}.",
        "",
    ]
    for section in sections:
        lines += [f"## {section.title}", "", section.about, "", "| what | measured | baseline | ratio | aim | met |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        for f in section.figures:
            ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
            met = "" if f.met is None else "yes" if f.met else "**no**"
            lines.append(f"| {f.what} | {f.measured} | {f.baseline} | {ratio} | {f.target} | {met} |")
        lines.append("")
    return "\n".join(lines)
