"""What every object has: metadata, conditions, and the habits of our models.

Objects travel and are stored as plain JSON; models are the border where they are checked. A model refuses
fields it does not know and says which ones it does, because a misspelt field that is silently dropped is a
job that runs without its memory limit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from isthmus._kit.clock import parse_timestamp, timestamp

GROUP = "isthmus.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

MAX_NAME = 253
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=MAX_NAME)]
ShortName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE_PATTERN, max_length=63)]

FIRST_YEAR, LAST_YEAR = 1970, 8999
"""Times are added to and subtracted from; a thousand years are left before that overflows."""


def _normal_time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    moment = parse_timestamp(value)
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"{value!r} is out of range; use a time in the years {FIRST_YEAR} to {LAST_YEAR}")
    # Times that we wrote ourselves (to the second, or to the millisecond) stay as they are: they are read far more
    # often than others, and whoever compares objects must see no difference.
    ours = value[-1] == "Z" and value[10] == "T" and (len(value) == 20 or (len(value) == 24 and value[19] == "."))
    return value if ours else timestamp(moment)


Time = Annotated[
    str,
    BeforeValidator(_normal_time),
    Field(json_schema_extra={"format": "date-time"}),
]


class Model(BaseModel):
    """The base of all parts of objects: camelCase outside, snake_case inside, no unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        use_enum_values=False,
        frozen=False,
        allow_inf_nan=False,  # JSON has neither: written as null, the object could not be read again
    )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class OwnerReference(Model):
    """The object this one belongs to: when the owner goes, this goes."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """Name and bookkeeping of an object. What Kubernetes clients send beyond this is dropped, not refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    name: Name = ""
    generate_name: str | None = Field(default=None, max_length=253)
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[LabelKey, LabelValue] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One observation about an object, in the form `kubectl wait --for=condition=…` reads."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    observed_generation: int | None = None


class Resource(Model):
    """What every kind has."""

    api_version: Literal["isthmus.dev/v1"] = "isthmus.dev/v1"
    kind: str
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The tenant it belongs to; empty for kinds that belong to nobody."""
        return self.metadata.namespace or ""

    @property
    def uid(self) -> str:
        """What distinguishes it from an earlier object of the same name."""
        return self.metadata.uid or ""


def set_condition(conditions: list[Condition], new: Condition, now: str) -> list[Condition]:
    """The list with `new` in its place; the transition time moves only when the status does."""
    kept = [c for c in conditions if c.type != new.type]
    old = next((c for c in conditions if c.type == new.type), None)
    since = old.last_transition_time if old and old.status == new.status else now
    return [*kept, new.model_copy(update={"last_transition_time": since})]
