"""Template: an interactive program that people start instances of. Administrators write them.

The program listens on `port` of its job, on the job's own loopback: nobody reaches it there but through the proxy. Each
instance has a host name to itself, so the program is at the root of it and need not know any base path.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from isthmus._kit.durations import parse_duration

from .frame.declarations import AGE, PUBLIC, Column, Kind, Navigation
from .frame.fields import Duration
from .frame.meta import Condition, Model, Resource
from .jobs import EnvVar, JobSpec, Placement, Resources


class TemplateSpec(Model):
    """What is wanted."""

    title: str = Field(default="", max_length=100, description="what people see in the gallery")
    description: str = Field(default="", max_length=1024)
    command: list[str] | None = Field(
        default=None, max_length=1000, description="program and arguments, without a shell"
    )
    script: str | None = Field(default=None, max_length=262_144, description="a script in its place")
    args: list[str] = Field(default_factory=list, max_length=1000, description="arguments of the script")
    image: str | None = Field(default=None, max_length=512, description="container image")
    env: list[EnvVar] = Field(default_factory=list, max_length=256)
    resources: Resources = Field(
        default_factory=Resources, description="what an instance has that asks for nothing else"
    )
    placement: Placement = Field(default_factory=Placement, description="where its instances may run")
    port: int = Field(ge=1, le=65535, description="where the program listens, on its loopback")
    idle_after: Duration | None = Field(
        default=None, description="an instance that nobody used for so long is stopped; none means never"
    )
    longest_life: Duration | None = Field(
        default=None, description="an instance is stopped so long after its start; its owner may extend it"
    )

    @field_validator("idle_after", "longest_life")
    @classmethod
    def _some_time(cls, limit: str | None) -> str | None:
        if limit is not None and parse_duration(limit) < 60:
            raise ValueError("must be at least 1m")
        return limit

    @model_validator(mode="after")
    def _runnable(self) -> TemplateSpec:
        JobSpec.model_validate({"command": self.command, "script": self.script, "args": self.args})
        return self


class TemplateStatus(Model):
    """What was seen."""

    conditions: list[Condition] = Field(default_factory=list)


class Template(Resource):
    """An interactive program."""

    kind: Literal["Template"] = "Template"
    spec: TemplateSpec
    status: TemplateStatus = Field(default_factory=TemplateStatus)


TEMPLATE = Kind(
    "Template",
    "templates",
    Template,
    namespaced=False,
    short_names=("itemplate",),
    columns=(
        Column("Title", ".spec.title"),
        Column("Port", ".spec.port", "integer"),
        Column("Idle", ".spec.idleAfter"),
        AGE,
        Column("Description", ".spec.description", priority=1),
    ),
    description="An interactive program that people start instances of.",
    rights=PUBLIC,
    navigation=Navigation("Templates"),
)
