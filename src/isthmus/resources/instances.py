"""Instance: a running program of one person, reached through the proxy at an address of its own.

It is made of a Job that stays up, one for each start. `intent: Stop` ends the job; `intent: Run` starts another. Who
created it gets in, and those whom she names in `sharedWith`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from isthmus._kit.durations import parse_duration
from isthmus.errors import invalid_field

from .frame.declarations import AGE, OF_MEMBERS, Column, Kind, Navigation, Reference, at_any_time
from .frame.fields import Duration
from .frame.meta import Model, Name, Resource, Time
from .frame.states import INSTANCE_PHASES, INSTANCE_TRANSITIONS, InstancePhase
from .jobs import EnvVar, Files, Placement, Resources

SEPARATOR = "--"
"""Between an instance's name and its tenant's in a host name. No instance's name has it: there is one reading."""
MAX_LABEL = 63
MAX_SHARED = 100
User = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class InstanceIntent(StrEnum):
    """What its owner wants of it now."""

    RUN = "Run"
    STOP = "Stop"


class InstanceSpec(Model):
    """What is wanted."""

    template: Name = Field(description="name of a Template")
    files: Files | None = Field(default=None, description="a folder sent along, which the program starts in")
    env: list[EnvVar] = Field(default_factory=list, max_length=256, description="beside those of the template")
    resources: Resources | None = Field(default=None, description="in place of the template's")
    placement: Placement | None = Field(default=None, description="in place of the template's")
    idle_after: Duration | None = Field(default=None, description="in place of the template's; 0s means never")
    longest_life: Duration | None = Field(default=None, description="in place of the template's; 0s means for ever")
    shared_with: list[User] = Field(
        default_factory=list, max_length=MAX_SHARED, description="users of the tenant who may use it beside its owner"
    )
    intent: InstanceIntent = InstanceIntent.RUN

    @field_validator("idle_after", "longest_life")
    @classmethod
    def _some_time(cls, limit: str | None) -> str | None:
        if limit is not None and 0 < parse_duration(limit) < 60:
            raise ValueError("must be at least 1m, or 0s for none")
        return limit


class InstanceStatus(Model):
    """What was seen."""

    phase: InstancePhase = InstancePhase.PENDING
    reason: str | None = Field(default=None, description="one word a program may test for")
    message: str | None = Field(default=None, description="why, in a sentence")
    member: str | None = Field(
        default=None, description="the member of the tenant who created it, where a personal token says"
    )
    submitted_by: str | None = Field(default=None, description="the user of the token that created it")
    url: str | None = Field(default=None, description="where it is, once it is Ready")
    starts: int = Field(default=0, description="counts the starts")
    job: str | None = Field(default=None, description="the job of the present start")
    site: str | None = None
    port: int | None = Field(default=None, description="where its program listens")
    failures: int = Field(default=0, description="starts in a row that a fault of a machine ended")
    started_at: Time | None = Field(default=None, description="when its program began to run")
    last_used_at: Time | None = Field(default=None, description="when somebody last did something in it, to a minute")
    expires_at: Time | None = Field(default=None, description="when its longest life ends")
    retry_at: Time | None = Field(default=None, description="not started again before this")
    observed_generation: int | None = None


class Instance(Resource):
    """A running program of one person."""

    kind: Literal["Instance"] = "Instance"
    spec: InstanceSpec
    status: InstanceStatus = Field(default_factory=InstanceStatus)


def host_label(name: str, tenant: str) -> str:
    """The first part of its host name."""
    return f"{name}{SEPARATOR}{tenant}"


def of_label(label: str) -> tuple[str, str] | None:
    """The instance's name and its tenant's; None if the label is of no instance."""
    name, found, tenant = label.partition(SEPARATOR)
    return (name, tenant) if name and found and tenant else None


def _room_for_a_host_name(instance: Mapping[str, Any]) -> None:
    """Its name is part of a host name, and of those of its jobs."""
    name, tenant = instance["metadata"]["name"], instance["metadata"]["namespace"]
    if "." in name or SEPARATOR in name:
        raise invalid_field("metadata.name", "becomes part of a host name: it must have no dot and no -- in it")
    if len(host_label(name, tenant)) > MAX_LABEL:
        most = MAX_LABEL - len(host_label("", tenant))
        raise invalid_field(
            "metadata.name", f"becomes part of a host name: it may have {most} characters in this tenant"
        )


INSTANCE = Kind(
    "Instance",
    "instances",
    Instance,
    namespaced=True,
    short_names=("iinst",),
    columns=(
        Column("Template", ".spec.template"),
        Column("Phase", ".status.phase"),
        Column("Site", ".status.site"),
        Column("Address", ".status.url"),
        AGE,
        Column("Owner", ".status.submittedBy", priority=1),
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "spec.template", "spec.intent"),
    description="A running program of one person, reached at an address of its own.",
    phases=INSTANCE_PHASES,
    transitions=INSTANCE_TRANSITIONS,
    changes=at_any_time("intent", "sharedWith", "idleAfter", "longestLife"),
    admit=(_room_for_a_host_name,),
    rights=OF_MEMBERS,
    work=True,
    refers=(
        Reference("spec.template", "Template"),
        Reference("status.job", "Job"),
        Reference("status.site", "Site"),
        Reference("spec.placement.sites[]", "Site"),
    ),
    trees=("spec.files.tree",),
    owns=("Job",),
    navigation=Navigation("Instances", "i"),
)
