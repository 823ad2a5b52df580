"""Event: something that happened to an object, reported to people (`kubectl describe` shows them)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from .frame.declarations import Column, Kind, Rights
from .frame.meta import Model, ObjectMeta, Time
from .frame.roles import READ


class ObjectReference(Model):
    """The object an event is about."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(Model):
    """A core/v1 Event, in the fields that kubectl reads."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    api_version: Literal["v1"] = "v1"
    kind: Literal["Event"] = "Event"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    involved_object: ObjectReference = Field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    count: int = 1
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    source: dict[str, Any] = Field(default_factory=dict)
    reporting_component: str = "isthmus"


EVENT = Kind(
    "Event",
    "events",
    Event,
    namespaced=True,
    short_names=("ev",),
    group="",
    has_status=False,
    categories=(),
    columns=(
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".involvedObject.name"),
        Column("Message", ".message"),
    ),
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
    ),
    description="Something that happened to an object.",
    rights=Rights(viewer=READ, readable=()),
    exported=False,
)
