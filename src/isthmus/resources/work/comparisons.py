"""What an experiment's status says of its cells: measured numbers with their spread, and whether they are right."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from isthmus.resources.frame.meta import Model

LARGEST = 1e300
"""What is reported beyond does not count: sums and differences of such numbers are numbers too."""


class CellState(StrEnum):
    """Where a cell is."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    PRUNED = "Pruned"
    CANCELLED = "Cancelled"


class Spread(Model):
    """Numbers of several runs: the median, the quartiles around it, and the ends."""

    median: float
    low: float = Field(description="first quartile")
    high: float = Field(description="third quartile")
    min: float
    max: float
    count: int = Field(description="how many runs have it")


class RunCounts(Model):
    """How many runs are in which state."""

    total: int = 0
    created: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class CellResult(Model):
    """One cell of the comparison. Numbers are of the runs that succeeded."""

    index: int
    device: str | None = None
    site: str | None = None
    image: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    state: CellState = CellState.WAITING
    message: str | None = Field(default=None, description="why it waits or failed")
    runs: RunCounts = Field(default_factory=RunCounts)
    jobs: list[str] = Field(default_factory=list, description="its runs, in the order of their repetitions")
    run_time: Spread | None = Field(default=None, description="seconds")
    energy: Spread | None = Field(default=None, description="joules")
    energy_source: str | None = Field(default=None, description="rapl, hwmon, engine, or estimated if any run's is")
    energy_delay: Spread | None = Field(default=None, description="joule-seconds: the energy-delay product")
    peak_memory: Spread | None = Field(default=None, description="bytes")
    cost: Spread | None = Field(default=None, description="by the prices of its site and device classes")
    exits: dict[str, int] = Field(default_factory=dict, description="how often it ended how: an exit code, or a signal")
    values: dict[str, Spread] = Field(default_factory=dict, description="what the program reported")
    objective: float | None = None
    correct: bool | None = Field(default=None, description="whether it agrees with the reference; none: not known")
    deviations: list[str] = Field(default_factory=list, description="how it differs from the reference")
