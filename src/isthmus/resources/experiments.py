"""Experiment: one workload over a matrix of devices, sites, images and parameters; its status is the comparison.

A **cell** is one point of the matrix, numbered from 0; a **run** is one repetition of a cell and is a Job of its own,
called `<experiment>-<cell>-<repetition>`. Parameters are enumerated (Grid) or searched (Random, TPE).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from isthmus.errors import invalid_field

from .frame.declarations import AGE, OF_MEMBERS, Column, Kind, Navigation, Reference, at_any_time, while_in
from .frame.fields import Duration
from .frame.meta import MAX_NAME, Condition, LabelKey, LabelValue, Model, Name, Resource, ShortName, Time
from .frame.states import EXPERIMENT_PHASES, EXPERIMENT_TRANSITIONS, ExperimentPhase
from .jobs import Intent, JobSpec
from .schemas.crd_rules import EXPERIMENT_RULES
from .work.comparisons import CellResult, RunCounts

MAX_CELLS = 1000
MAX_RUNS = 10_000

# What the platform itself puts on the jobs of an experiment.
EXPERIMENT_LABEL = "isthmus.dev/experiment"
CELL_LABEL = "isthmus.dev/cell"
REPETITION_LABEL = "isthmus.dev/repetition"
POINT_ANNOTATION = "isthmus.dev/point"
PRUNED_ANNOTATION = "isthmus.dev/pruned"

MEASURES = ("runTime", "energy", "energyDelay", "peakMemory", "cost")
"""What is measured of every run, whatever the program reports."""

_TAKEN = frozenset({"device", "site", "image", "repetition"})


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise ValueError("must be a finite number or a text")
        return repr(value)
    return value


Scalar = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(description="a number or a text", max_length=1024, json_schema_extra={"x-kubernetes-int-or-string": True}),
]
ParameterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$", max_length=63)]
ValueName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_./-]{0,62}$")]


class SearchMethod(StrEnum):
    """How the points of the parameters are chosen."""

    GRID = "Grid"
    RANDOM = "Random"
    TPE = "TPE"


class Goal(StrEnum):
    """Which way is better."""

    MINIMIZE = "Minimize"
    MAXIMIZE = "Maximize"


class PruningMethod(StrEnum):
    """How it is decided that a trial is not worth finishing."""

    MEDIAN = "Median"
    SUCCESSIVE_HALVING = "SuccessiveHalving"


class Range(Model):
    """Numbers from `min` to `max`, both included."""

    min: float = Field(allow_inf_nan=False)
    max: float = Field(allow_inf_nan=False)
    step: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="only these steps from min")
    log: bool = Field(default=False, description="search evenly over orders of magnitude")
    integer: bool = Field(default=False, description="whole numbers only")

    @model_validator(mode="after")
    def _sound(self) -> Range:
        if self.min > self.max:
            raise ValueError("min is above max; exchange them")
        if self.log and self.min <= 0:
            raise ValueError("min must be above 0 where log is set")
        if self.log and self.step is not None:
            raise ValueError("step and log exclude each other; remove one")
        if self.integer and any(n is not None and n != int(n) for n in (self.min, self.max, self.step)):
            raise ValueError("min, max and step must be whole numbers where integer is set")
        return self

    @property
    def steps(self) -> int:
        """How many steps lie between min and max."""
        return int((_exact(self.max) - _exact(self.min)) / _exact(self.step or 1.0))

    def stepped(self, count: int) -> float:
        """So many steps from min, without the dust of binary fractions: 0.9 and not 0.8999999999999999."""
        return float(_exact(self.min) + _exact(self.step or 1.0) * count)


def _exact(number: float) -> Decimal:
    return Decimal(repr(number))


class Parameter(Model):
    """One thing that varies: `{name}` in command, args and env becomes its value; PARAM_<name> holds it too."""

    name: ParameterName
    values: list[Scalar] | None = Field(default=None, min_length=1, max_length=MAX_CELLS, description="one of these")
    range: Range | None = Field(default=None, description="anything in here")

    @model_validator(mode="after")
    def _one(self) -> Parameter:
        if (self.values is None) == (self.range is None):
            raise ValueError("give exactly one of values (a list) and range (min and max)")
        if self.values is not None and len(set(self.values)) != len(self.values):
            raise ValueError("names a value twice; remove one")
        if self.name in _TAKEN:
            raise ValueError(f"{self.name!r} is set by the matrix; choose another name")
        return self


class Matrix(Model):
    """Where the workload runs: every combination of these. An empty list adds nothing."""

    devices: list[ShortName] = Field(default_factory=list, max_length=64, description="classes; each run has one unit")
    sites: list[Name] = Field(default_factory=list, max_length=64)
    images: list[Annotated[str, StringConstraints(min_length=1, max_length=512)]] = Field(
        default_factory=list, max_length=64
    )

    @field_validator("devices", "sites", "images")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        if len(set(names)) != len(names):
            raise ValueError("names one twice; use repetitions to run it more than once")
        return names


class Objective(Model):
    """What a search improves, and what makes a cell the best one."""

    value: ValueName = Field(
        description="a value the program reports, or runTime, energy, energyDelay, peakMemory, cost"
    )
    goal: Goal = Goal.MINIMIZE


class Pruning(Model):
    """Ends trials early whose reported values (with a `step`) fall behind those of others at the same step."""

    method: PruningMethod = PruningMethod.MEDIAN
    startup_trials: int = Field(default=4, ge=0, le=1000, description="so many are finished before any is pruned")
    warmup_steps: int = Field(default=0, ge=0, le=1_000_000_000, description="no pruning up to this step")


class Search(Model):
    """How points are chosen. Random and TPE try so many points for each combination of the matrix."""

    method: SearchMethod = SearchMethod.GRID
    trials: int | None = Field(default=None, ge=1, le=MAX_CELLS)
    seed: int = Field(default=0, ge=0, le=2**31 - 1, description="the same seed tries the same points")
    pruning: Pruning | None = None

    @model_validator(mode="after")
    def _sound(self) -> Search:
        if self.method is SearchMethod.GRID and self.trials is not None:
            raise ValueError("trials is for Random and TPE; a Grid tries every point")
        if self.method is not SearchMethod.GRID and self.trials is None:
            raise ValueError(f"trials is required where method is {self.method.value}: how many points to try")
        if self.pruning is not None and self.method is not SearchMethod.TPE:
            raise ValueError("pruning is for the method TPE; remove it or change method")
        return self


class Stop(Model):
    """When to stop before everything has run. What runs then is cancelled."""

    max_failures: int | None = Field(default=None, ge=1, description="after so many failed runs")
    max_duration: Duration | None = Field(default=None, description="after this long")
    max_energy_joules: float | None = Field(default=None, gt=0, description="when the runs have used this much")
    max_cost: float | None = Field(default=None, gt=0, description="when the runs have cost this much")
    target: float | None = Field(
        default=None, allow_inf_nan=False, description="when a cell's objective is this good or better"
    )


class ValueCheck(Model):
    """A reported value that must agree with the reference cell's."""

    name: ValueName
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="how far off it may be")
    relative: bool = Field(default=False, description="the tolerance is a part of the reference's value: 0.01 is 1 %")


class Check(Model):
    """Correctness: every cell against a reference cell with the same parameters."""

    device: ShortName | None = Field(default=None, description="device of the reference; none: the matrix's first")
    site: Name | None = None
    image: str | None = Field(default=None, max_length=512)
    files: list[Annotated[str, StringConstraints(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=64, description="output files that must be the same, byte for byte"
    )
    values: list[ValueCheck] = Field(default_factory=list, max_length=64)

    @model_validator(mode="after")
    def _something(self) -> Check:
        if not self.files and not self.values:
            raise ValueError("says nothing to compare; name files, values or both")
        return self


class Report(Model):
    """Where else reported values come from, beside lines `isthmus: {…}` of the output."""

    file: str = Field(max_length=4096, description="a JSON file among the outputs: an object of names and numbers")

    @field_validator("file")
    @classmethod
    def _inside(cls, path: str) -> str:
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} must be a path below the job's own folder, such as metrics.json")
        return path


class ExperimentSpec(Model):
    """What is wanted."""

    template: JobSpec = Field(description="the job that every run is made from")
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=256, description="labels of every run")
    matrix: Matrix = Field(default_factory=Matrix)
    parameters: list[Parameter] = Field(default_factory=list, max_length=32)
    search: Search = Field(default_factory=Search)
    objective: Objective | None = None
    repetitions: int = Field(default=1, ge=1, le=1000, description="how often each cell runs")
    parallel: int | None = Field(default=None, ge=1, le=MAX_RUNS, description="how many runs may be active at once")
    stop: Stop = Field(default_factory=Stop)
    check: Check | None = None
    report: Report | None = None
    intent: Intent = Intent.RUN
    ttl_after_finished: Duration | None = Field(default=None, description="delete it this long after its end")

    @model_validator(mode="after")
    def _whole(self) -> ExperimentSpec:
        for problem in _problems(self):
            raise ValueError(problem)
        return self

    @property
    def combinations(self) -> int:
        """How many combinations the matrix has."""
        return math.prod(max(1, len(names)) for names in (self.matrix.devices, self.matrix.sites, self.matrix.images))

    @property
    def points(self) -> int:
        """How many points of the parameters are tried for each combination."""
        if self.search.method is SearchMethod.GRID:
            return math.prod(len(p.values or ()) for p in self.parameters)
        return self.search.trials or 1


def _problems(spec: ExperimentSpec) -> list[str]:
    """What is wrong between the fields."""
    found = []
    written = spec.template.model_fields_set
    if spec.template.array is not None or spec.template.ttl_after_finished is not None:
        found.append("template.array and template.ttlAfterFinished have no place in an experiment; remove them")
    if "intent" in written and spec.template.intent is not Intent.RUN:
        found.append("template.intent has no place in an experiment; set spec.intent")
    names = [p.name for p in spec.parameters]
    if len(set(names)) != len(names):
        found.append("parameters: a name is there twice; rename or remove one")
    if spec.search.method is SearchMethod.GRID and (ranged := [p.name for p in spec.parameters if p.range]):
        found.append(f"parameters: {ranged[0]} has a range, which a Grid cannot enumerate; give values, or set "
                     "search.method to Random or TPE")  # fmt: skip
    if spec.search.method is not SearchMethod.GRID and not spec.parameters:
        found.append("search: there is nothing to search; give parameters")
    if spec.search.method is SearchMethod.TPE and spec.objective is None:
        found.append("objective is required for TPE: which value is to be improved, and which way")
    if spec.search.pruning is not None and spec.objective and spec.objective.value in MEASURES:
        found.append(f"search.pruning needs an objective that the program reports while it runs, not "
                     f"{spec.objective.value}")  # fmt: skip
    if spec.stop.target is not None and spec.objective is None:
        found.append("stop.target needs an objective: the target of which value?")
    if not found and (cells := spec.combinations * spec.points) > MAX_CELLS:
        found.append(f"the matrix has {cells} cells; at most {MAX_CELLS} are compared: leave some out, or search")
    elif not found and (runs := cells * spec.repetitions) > MAX_RUNS:
        found.append(f"there would be {runs} runs; at most {MAX_RUNS}: lower repetitions")
    return found + _unknown_reference(spec)


def _unknown_reference(spec: ExperimentSpec) -> list[str]:
    if spec.check is None:
        return []
    matrix = spec.matrix
    pairs = (("device", spec.check.device, matrix.devices), ("site", spec.check.site, matrix.sites),
             ("image", spec.check.image, matrix.images))  # fmt: skip
    return [
        f"check.{what}: {name!r} is not in the matrix; choose one of {', '.join(names) or 'none, and leave it out'}"
        for what, name, names in pairs
        if name is not None and name not in names
    ]


class ExperimentStatus(Model):
    """What was seen: the comparison."""

    phase: ExperimentPhase = ExperimentPhase.PENDING
    reason: str | None = Field(default=None, description="one word a program may test for")
    message: str | None = Field(default=None, description="why, in a sentence")
    member: str | None = Field(
        default=None, description="the member of the tenant who created it, where a personal token says"
    )
    submitted_by: str | None = Field(
        default=None, description="the user of the token that created it, for lists; accounts follow member alone"
    )
    started_at: Time | None = None
    finished_at: Time | None = None
    runs: RunCounts = Field(default_factory=RunCounts)
    cells: list[CellResult] = Field(default_factory=list, description="the comparison, a cell each")
    reference: int | None = Field(default=None, description="the cell that others are checked against (its first)")
    best: int | None = Field(default=None, description="the cell with the best objective")
    front: list[int] = Field(
        default_factory=list, description="cells that no other beats in both time and energy: the Pareto front"
    )
    energy_joules: float | None = Field(default=None, description="of all runs together")
    cost: float | None = Field(default=None, description="of all runs together")
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Experiment(Resource):
    """One workload over a matrix of devices and parameters."""

    kind: Literal["Experiment"] = "Experiment"
    spec: ExperimentSpec
    status: ExperimentStatus = Field(default_factory=ExperimentStatus)


def run_name(experiment: str, cell: int, repetition: int) -> str:
    """What the job of a run is called: always the same, so that it is made once."""
    return f"{experiment}-{cell}-{repetition}"


def label_of(name: str) -> str:
    """The experiment's name as its jobs bear it: a label is shorter than a name, and ends in a letter or digit."""
    return name[:63].rstrip("-.")


_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(text: str, point: dict[str, str]) -> str:
    """The text with `{name}` replaced where the name is known; every other brace stays."""
    return _PLACE.sub(lambda found: point.get(found[1], found[0]), text)


def _room_for_runs(experiment: Mapping[str, Any]) -> None:
    """The runs of an experiment are called after it: two numbers of at most four digits."""
    if len(experiment["metadata"]["name"]) + 10 > MAX_NAME:
        raise invalid_field("metadata.name", "leaves no room for the names of its runs; shorten it by ten characters")


EXPERIMENT = Kind(
    "Experiment",
    "experiments",
    Experiment,
    namespaced=True,
    short_names=("iexp",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Runs", ".status.runs.total", "integer"),
        Column("Active", ".status.runs.active", "integer"),
        Column("Succeeded", ".status.runs.succeeded", "integer"),
        Column("Failed", ".status.runs.failed", "integer"),
        Column("Best", ".status.best", "integer"),
        AGE,
        Column("Method", ".spec.search.method", priority=1),
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "spec.intent"),
    description="One workload over a matrix of devices and parameters, compared.",
    phases=EXPERIMENT_PHASES,
    transitions=EXPERIMENT_TRANSITIONS,
    changes=at_any_time("intent", "ttlAfterFinished")
    | while_in((phase for phase in ExperimentPhase if not phase.terminal), "parallel", "stop"),
    admit=(_room_for_runs,),
    crd_rules=EXPERIMENT_RULES,
    rights=OF_MEMBERS,
    work=True,
    refers=(
        Reference("spec.matrix.devices[]", "DeviceClass"),
        Reference("spec.matrix.sites[]", "Site"),
        Reference("spec.template.dependencies[].job", "Job"),
        Reference("status.cells[].jobs[]", "Job"),
    ),
    trees=("spec.template.files.tree",),
    owns=("Job",),
    navigation=Navigation("Experiments", "e"),
)
