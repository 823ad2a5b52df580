"""Runs: methods over instances, and the rows and tables that come of it.

Decisions are measured in processor time, so that other programs on the machine do not count.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import NamedTuple

from .methods import RANDOMISED, method
from .simulating import Instance, Outcome, simulate


class Row(NamedTuple):
    """One line of the CSV file."""

    nodes: int
    scenario: str
    instance: str
    seed: int
    method: str
    cost: float
    lateness_cost: float
    bound: float
    reconfigurations: int
    seconds: float
    """Processor time of all decisions."""


COLUMNS = Row._fields


@dataclass(frozen=True, slots=True)
class Case:
    """An instance and where it comes from."""

    scenario: str
    name: str
    instance: Instance


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one instance with one seed."""

    case: Case
    seed: int
    method: str
    bound: float
    outcome: Outcome

    @property
    def row(self) -> Row:
        """What is kept of it."""
        outcome = self.outcome
        return Row(
            len(self.case.instance.machines),
            self.case.scenario,
            self.case.name,
            self.seed,
            self.method,
            round(outcome.cost, 6),
            round(outcome.lateness_cost, 6),
            round(self.bound, 6),
            outcome.reconfigurations,
            round(outcome.seconds, 6),
        )


def run_case(case: Case, methods: Sequence[str], seeds: int, iterations: int) -> Iterable[Run]:
    """Every method on an instance, for each seed. Without chance all seeds are alike: one run counts for all."""
    bound = case.instance.bound
    for name in methods:
        outcome: Outcome | None = None
        for seed in range(seeds):
            if outcome is None or name in RANDOMISED:
                outcome = simulate(case.instance, method(name, seed=seed, iterations=iterations), process_time)
            yield Run(case, seed, name, bound, outcome)


def write_csv(path: Path, rows: Iterable[Row]) -> None:
    """All rows, one per line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def table(runs: Sequence[Run]) -> list[str]:
    """The lines of a table: the methods in one cell, which is a number of machines and a scenario."""
    heading = ("method", "cost", "late cost", "late s/job", "over bound", "vs relinking", "changes", "ms/decision")
    lines = [heading]
    methods = list(dict.fromkeys(run.method for run in runs))
    relinking = _mean_cost([run for run in runs if run.method == "path-relinking"])
    for name in methods:
        mine = [run for run in runs if run.method == name]
        cost = _mean_cost(mine)
        jobs = fmean(len(run.case.instance.jobs) for run in mine)
        lines.append(
            (
                name,
                f"{cost:.2f}",
                f"{100 * fmean(run.outcome.lateness_cost for run in mine) / cost if cost else 0:.2f} %",
                f"{fmean(run.outcome.lateness for run in mine) / jobs:.0f}",
                f"{100 * max(0.0, cost / fmean(run.bound for run in mine) - 1):+.1f} %",
                f"{100 * (cost / relinking - 1):+.1f} %" if relinking else "",
                f"{fmean(run.outcome.reconfigurations for run in mine):.0f}",
                f"{1000 * sum(r.outcome.seconds for r in mine) / max(1, sum(r.outcome.decisions for r in mine)):.2f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    ]


def _mean_cost(runs: Sequence[Run]) -> float:
    return fmean(run.outcome.cost for run in runs) if runs else 0.0
