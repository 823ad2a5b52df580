"""`python -m benchmarks [--only reads,creates] [--seconds 5] [--stdout]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from .load import need_wrk
from .report import page

PARTS = ("reads", "creates", "throughput", "running", "watching", "slurm", "kubernetes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seconds", type=int, default=5, help="length of each load")
    parser.add_argument("--stdout", action="store_true", help="print the page instead of writing docs/benchmarks.md")
    asked = parser.parse_args()
    need_wrk()
    sections = []
    for part in asked.only.split(","):
        print(f"measuring {part} …", file=sys.stderr, flush=True)
        sections.append(importlib.import_module(f"benchmarks.{part}").run(asked.seconds))
    text = page(sections)
    if asked.stdout:
        print(text)
    else:
        Path("docs/benchmarks.md").write_text(text)
        print("wrote docs/benchmarks.md", file=sys.stderr)


main()
