"""`python -m benchmarks [reads creates …] [--seconds 5] [--jobs 1000] [--stdout]`.

Without names everything is measured and `docs/benchmarks.md` is written anew; with names only their sections of it are
replaced, and each says when it was measured.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from .load import need_wrk
from .report import page, refreshed

PARTS = (
    "reads",
    "creates",
    "throughput",
    "running",
    "against",
    "image_starts",
    "watching",
    "taking_over",
    "agents",
    "slurm",
    "slurm_sites",
    "kubernetes",
    "exposing",
    "console",
)

SIZED = ("kubernetes",)
"""Parts that take long, and whose sizes may be set."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--seconds", type=int, default=5, help="length of each load")
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of the kubernetes part")
    parser.add_argument("--objects", type=int, default=10_000, help="objects held in the kubernetes part")
    parser.add_argument("--stdout", action="store_true", help="print the page instead of writing docs/benchmarks.md")
    asked = parser.parse_args()
    need_wrk()
    sections = []
    for part in asked.parts or PARTS:
        print(f"measuring {part} …", file=sys.stderr, flush=True)
        run = importlib.import_module(f"benchmarks.{part}").run
        sized = (asked.jobs, asked.objects) if part in SIZED else ()
        sections.append(run(asked.seconds, *sized))
    place = Path("docs/benchmarks.md")
    text = refreshed(place.read_text(), sections) if asked.parts and place.exists() else page(sections)
    if asked.stdout:
        print(text)
    else:
        place.write_text(text)
        print("wrote docs/benchmarks.md", file=sys.stderr)


main()
