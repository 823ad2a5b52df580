"""`python -m benchmarks.scheduling`: methods for jobs with deadlines, on the published setting or your instances."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.failures import say
from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.models import CostGoal, CostObjective, Overheads

from .generating import Scenario, generate
from .methods import METHODS
from .plots import cost_chart, decision_chart, gantt
from .relinking import ITERATIONS
from .runs import Case, Run, run_case, table, write_csv
from .tables import find_instances, read_instance, read_prices, read_profiles, shipped

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_OVERHEADS = {"free": Overheads(), "realistic": Overheads(start=60, restore=30)}


@app.command()
def compare(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER]…", help="Replay these instances: jobs.csv, times.csv, nodes.csv.", show_default=False
        ),
    ] = None,
    nodes: Annotated[str, typer.Option(help="Numbers of machines.", metavar="N,…")] = "10",
    scenarios: Annotated[str, typer.Option(help="How jobs arrive.", metavar="NAME,…")] = ",".join(Scenario),
    methods: Annotated[str, typer.Option(help="What is compared.", metavar="NAME,…")] = ",".join(METHODS),
    instances: Annotated[
        str, typer.Option(help="How many per cell, or folders to replay.", metavar="N|FOLDER,…")
    ] = "3",
    seeds: Annotated[int, typer.Option(help="How often randomised methods run on each.", min=1)] = 2,
    iterations: Annotated[int, typer.Option(help="Drafts of randomised methods per decision.", min=1)] = ITERATIONS,
    first: Annotated[int, typer.Option(help="Seed of the first instance of a cell.", metavar="SEED")] = 0,
    profiles: Annotated[Path | None, typer.Option(help="Run times.", metavar="CSV", show_default="our own")] = None,
    prices: Annotated[Path | None, typer.Option(help="Machines.", metavar="CSV", show_default="our own")] = None,
    in_house: Annotated[bool, typer.Option("--in-house", help="Use In-house servers of the price table too.")] = False,
    overheads: Annotated[
        str,
        typer.Option(
            metavar="free|realistic|START,RESTORE,STOP",
            help="Seconds to start a machine, to restore a job and to stop it; realistic is 60,30,0.",
        ),
    ] = "free",
    objective: Annotated[CostGoal, typer.Option(help="What is saved.")] = CostGoal.COST,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write every run to this file.", metavar="FILE")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Write plots to this folder.", metavar="FOLDER")] = None,
) -> None:
    """Compare methods that place jobs with deadlines.

    Made instances follow the published setting: 10 jobs per machine; deadlines between one and three times the
    fastest run time; lateness costs 0.003 to 0.015 $/s. The same options give the same instances everywhere.

    \b
    Examples:
      python -m benchmarks.scheduling --nodes 10 --methods greedy,isthmus
      python -m benchmarks.scheduling --overheads realistic --csv runs.csv --plots plots
      python -m benchmarks.scheduling my-instances/ --methods edf,isthmus
    """
    chosen = _names(methods, METHODS, "method")
    cost = _overheads(overheads)
    replayed = list(folders or [])
    if not instances.isdecimal():
        replayed += [Path(word) for word in _words(instances)]
    if replayed:
        cases = _replayed(replayed, cost, CostObjective(objective))
    else:
        cases = _made(
            _numbers(nodes),
            [Scenario(name) for name in _names(scenarios, tuple(Scenario), "scenario")],
            range(first, first + int(instances)),
            _Tables(profiles, prices, in_house),
            cost,
            CostObjective(objective),
        )
    runs = _run_all(_checked(cases), chosen, seeds, iterations)
    if csv_file is not None:
        write_csv(csv_file, (run.row for run in runs))
        say(f"wrote {csv_file}")
    if plots is not None:
        _plot(runs, plots)


class _Tables:
    """Where profiles and prices are read from: both from files, or both our own."""

    def __init__(self, profiles: Path | None, prices: Path | None, in_house: bool) -> None:
        if (profiles is None) != (prices is None):
            raise Invalid("give both --profiles and --prices, or neither: run times and machines belong together")
        self.catalogue = read_prices(prices or shipped("machines.csv"), in_house=in_house)
        self.profiles = read_profiles(profiles or shipped("profiles.csv"), self.catalogue)


def _made(
    nodes: list[int],
    scenarios: list[Scenario],
    seeds: range,
    tables: _Tables,
    overheads: Overheads,
    objective: CostObjective,
) -> Iterator[Case]:
    for count in nodes:
        for scenario in scenarios:
            for seed in seeds:
                made = generate(
                    scenario, count, tables.profiles, tables.catalogue, seed, overheads=overheads, objective=objective
                )
                yield Case(str(scenario), str(seed), made)


def _replayed(folders: list[Path], overheads: Overheads, objective: CostObjective) -> Iterator[Case]:
    for folder in folders:
        for found in find_instances(folder):
            name = found.resolve().name if found == folder else str(found.relative_to(folder))
            instance, left_out = read_instance(found, overheads, objective)
            for why in left_out:
                say(f"{name}: {why}")
            yield Case("replay", name, instance)


def _run_all(cases: Iterator[Case], methods: tuple[str, ...], seeds: int, iterations: int) -> list[Run]:
    """Run, and write the table of each cell as soon as it is complete."""
    runs: list[Run] = []
    cell: list[Run] = []

    def write() -> None:
        if cell:
            case = cell[0].case
            bounds = {run.case.name: run.bound for run in cell}
            size = f"{_several(case.instance.machines, 'machine')}, {_several(case.instance.jobs, 'job')}"
            mean = f"mean of {_several(bounds, 'instance')}; lower bound {sum(bounds.values()) / len(bounds):.2f}"
            typer.echo(f"{case.scenario}, {size}, {mean}")
            typer.echo("\n".join(f"  {line}" for line in table(cell)) + "\n")
        runs.extend(cell)
        cell.clear()

    for case in cases:
        if cell and _cell(cell[0].case) != _cell(case):
            write()
        cell.extend(run_case(case, methods, seeds, iterations))
        for run in cell[-1:]:
            for job, why in list(run.outcome.rejected.items())[:3]:
                say(f"{case.name}: {job} was left out: {why}")
    write()
    if not runs:
        raise Invalid("there is nothing to run; ask for at least one instance")
    return runs


def _checked(cases: Iterator[Case]) -> Iterator[Case]:
    """Cases whose machines say what the objective needs."""
    for case in cases:
        silent = [kind.name for kind in case.instance.catalogue if not kind.power]
        if case.instance.objective.goal is CostGoal.ENERGY and silent:
            raise Invalid(f"--objective energy: the power of {silent[0]} is not known; add a column power, in watts")
        yield case


def _cell(case: Case) -> tuple[int, str]:
    return len(case.instance.machines), case.scenario


def _plot(runs: list[Run], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cost_chart([run.row for run in runs], folder / "cost.svg")
    once = [run for run in runs if not run.seed]
    best = [run for run in once if run.method == "isthmus"] or [run for run in once if run.method == runs[0].method]
    decision_chart(best, folder / "decisions.svg")
    for name in dict.fromkeys(run.method for run in runs):
        gantt(next(run for run in runs if run.method == name), folder / f"gantt-{name}.svg")
    say(f"wrote cost.svg, decisions.svg and gantt-METHOD.svg to {folder}")


def _several(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _names(text: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    words = _words(text)
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        raise Invalid(f"there is no {what} {', '.join(unknown) or 'given'}; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(words))


def _numbers(text: str) -> list[int]:
    try:
        found = [int(word) for word in _words(text)]
    except ValueError:
        raise Invalid(f"--nodes {text}: give whole numbers, such as 10,20,50") from None
    if not found or min(found) < 1:
        raise Invalid(f"--nodes {text}: each number must be at least 1")
    return found


def _overheads(text: str) -> Overheads:
    if text in _OVERHEADS:
        return _OVERHEADS[text]
    try:
        return Overheads(*(float(word) for word in _words(text)))
    except (ValueError, TypeError):
        raise Invalid(f"--overheads {text}: give free, realistic, or up to three numbers of seconds") from None


def call(words: list[str]) -> int:
    """Read the words, compare, and answer the exit code."""
    try:
        app(words, prog_name="python -m benchmarks.scheduling")
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
    return 0
