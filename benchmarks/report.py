"""What was measured, and the page that tells it."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from isthmus._kit.interpreters import is_optimised

HEADING = ("| what | measured | baseline | ratio | aim | met |", "| --- | --- | --- | --- | --- | --- |")


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

    def add(self, figure: Figure) -> None:
        """Note a figure, and tell it at once: whoever waits for the page sees how it goes."""
        self.figures.append(figure)
        ratio = "" if figure.ratio is None else f" ({figure.ratio:.2f})"
        print(f"  {figure.what}: {figure.measured}; {figure.baseline}{ratio}", file=sys.stderr, flush=True)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    built = " (built without optimisations)" if is_optimised(sysconfig.get_config_vars()) is False else ""
    system = f"Linux {platform.release()}, Python {platform.python_version()}{built}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}"


def page(sections: list[Section]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`. Each figure is a ratio to a baseline measured in the same run, because machines differ",
        "and are noisy; absolute numbers are of this machine only. Load and server share its cores.",
        "Jobs with deadlines and pools have pages of their own ([deadlines](benchmarks-scheduling.md),",
        "[pools](benchmarks-pools.md)).",
        "",
        f"Machine: {machine()}. Date: {datetime.now(UTC):%Y-%m-%d}.",
        "",
    ]
    for section in sections:
        lines += [_text(section), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def refreshed(text: str, sections: list[Section]) -> str:
    """The page with these sections measured anew, at their old places or at the end."""
    head, *parts = re.split(r"^(?=## )", text, flags=re.M)
    for section in sections:
        busy = f"load average {os.getloadavg()[2]:.0f} over the last quarter of an hour"
        section.about += f" Measured apart from the rest, on {datetime.now(UTC):%Y-%m-%d}, on {machine()}; {busy}."
        new = f"{_text(section)}\n\n"
        places = [n for n, part in enumerate(parts) if part.startswith(f"## {section.title}\n")]
        if places:
            parts[places[0]] = new
        else:
            parts.append(new)
    return "\n\n".join(part.strip("\n") for part in (head, *parts)) + "\n"


def with_rows(text: str, section: Section) -> str:
    """The page with some rows of a section measured anew, at their old places or at the end; its others stay.

    Each row says when it was measured and how busy the machine was. Rows are the same if they differ in numbers only.
    """
    head, *parts = re.split(r"^(?=## )", text, flags=re.M)
    place = next((n for n, part in enumerate(parts) if part.startswith(f"## {section.title}\n")), len(parts))
    old = parts[place].splitlines() if place < len(parts) else []
    rows = {_same(row.split(" | ")[0]): row for row in old if row.startswith("| ") and row not in HEADING}
    when = f"{datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}"
    rows |= {_same(f"| {f.what}"): _row(replace(f, measured=f"{f.measured} [{when}]")) for f in section.figures}
    told = f"Rows were measured one by one, on {machine()}, on the days and at the load averages that they name."
    about = f"{section.about} {told}"
    parts[place:] = ["\n".join([f"## {section.title}", "", about, "", *HEADING, *rows.values()]), *parts[place + 1 :]]
    return "\n\n".join(part.strip("\n") for part in (head, *parts)) + "\n"


def _same(what: str) -> str:
    return re.sub(r"[0-9,]+", "#", what)


def _text(section: Section) -> str:
    rows = (_row(figure) for figure in section.figures)
    return "\n".join([f"## {section.title}", "", section.about, "", *HEADING, *rows])


def _row(f: Figure) -> str:
    ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
    met = "" if f.met is None else "yes" if f.met else "**no**"
    return f"| {f.what} | {f.measured} | {f.baseline} | {ratio} | {f.target} | {met} |"
