"""Event: something that happened to an object, told to people (`kubectl describe` shows them)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from .meta import Model, ObjectMeta, Time


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
