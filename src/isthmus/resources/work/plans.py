"""What a job says about its deadline, and what is reported about where it goes and why.

`Profile` entries, `DeviceChoice` and `Restartable` are parts of a job's spec. `PlanStatus` is a part of its status and
the answer to "what if": the option that was chosen, the others, and what each costs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator, model_validator

from isthmus._kit.durations import parse_duration
from isthmus.resources.frame.fields import Duration, check_pattern
from isthmus.resources.frame.meta import Model, ShortName, Time

LATE_COST_PER_HOUR = 36.0
"""What an hour late costs if the job does not say: a cent per second, as much as a dozen large accelerators."""
MAX_ALTERNATIVES = 16


class Saving(StrEnum):
    """What a job with a deadline saves, beside being in time."""

    COST = "Cost"
    ENERGY = "Energy"


class ProfileSource(StrEnum):
    """How an expected run time is known."""

    PAST_RUNS = "PastRuns"
    MANIFEST = "Manifest"
    MODEL = "Model"
    """Worked out from other numbers of the same devices."""
    ASSUMED = "Assumed"
    """Nothing is known: an hour is assumed."""


class ProfileEntry(Model):
    """How long the whole job is expected to take on so many devices of a class; no class: on what it asks for."""

    class_: ShortName | None = Field(default=None, alias="class")
    count: int = Field(default=1, ge=1, le=10_000)
    duration: Duration

    @field_validator("duration")
    @classmethod
    def _some_time(cls, text: str) -> str:
        if parse_duration(text) <= 0:
            raise ValueError("must be more than 0")
        return text

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return parse_duration(self.duration)


class DeviceChoice(Model):
    """A class of device that the job may be given, and the numbers of it that it can use."""

    class_: ShortName = Field(alias="class", description="name of a DeviceClass")
    counts: list[int] = Field(default_factory=lambda: [1], min_length=1, max_length=16)

    @field_validator("counts")
    @classmethod
    def _counts(cls, counts: list[int]) -> list[int]:
        if any(not 1 <= count <= 10_000 for count in counts):
            raise ValueError("must be between 1 and 10000")
        return sorted(set(counts))


class Restartable(Model):
    """The job may be stopped for another one and goes on later, here or elsewhere.

    It is sent SIGTERM, has `grace` to save its state, and finds the files named by `checkpoint` in its folder again.
    """

    checkpoint: list[Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=list, max_length=64, description="patterns of files that hold its state: state/*"
    )
    keep: list[str] | None = Field(
        default=None, max_length=64, deprecated=True, description="the former name of checkpoint"
    )
    grace: Duration = Field(default="30s", description="between SIGTERM and SIGKILL")

    @model_validator(mode="before")
    @classmethod
    def _former_name(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("keep") and not value.get("checkpoint"):
            rest = {name: part for name, part in value.items() if name != "keep"}
            return {**rest, "checkpoint": value["keep"]}
        return value

    @field_validator("checkpoint")
    @classmethod
    def _inside(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            check_pattern(pattern, "state/*")
        return patterns


class PlanOption(Model):
    """One way to run the job, as things are now."""

    site: str
    class_: str | None = Field(default=None, alias="class")
    count: int = 0
    starts_at: Time
    ends_at: Time
    seconds: float = Field(description="expected run time")
    uncertainty: float = Field(description="share of the run time by which it may well be longer")
    source: ProfileSource
    cost: float = Field(description="of the devices and cpus, without what being late costs")
    energy_joules: float | None = None
    late_seconds: float = Field(default=0, description="after the deadline, if the uncertain part is needed too")
    meets_deadline: bool = True
    stops_others: bool | None = Field(default=None, description="restartable jobs are stopped to make room")


class PlanStatus(Model):
    """Where the job goes, why, and what the alternatives were."""

    decided_at: Time
    message: str
    deadline: Time | None = None
    chosen: PlanOption | None = None
    alternatives: list[PlanOption] = Field(default_factory=list)
    left_out: list[str] = Field(default_factory=list, description="what was not considered, and why")


class DeviceChosen(Model):
    """What of `resources.anyOf` the present attempt was given."""

    class_: ShortName = Field(alias="class")
    count: int


class Preemption(Model):
    """The job is being stopped to make room; it goes on later. Written before the engine is asked."""

    asked_at: Time
    message: str
