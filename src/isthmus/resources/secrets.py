"""Secret: credentials of a person or a tenant, given to nothing but her jobs.

What is secret is written and never shown again: the API seals `password` on its way in (`sealed`), with a key that is
not in the store, and bound to the object and to whose it is. A sealed text that is copied into another Secret, beside
another registry, or into somebody else's Secret of the same name, does not open there.

A Secret is for the jobs of who made it; with `shared`, for those of the whole tenant. Where the platform does not know
who made it (a token of the tenant and not of a person), it is for all jobs of which that is not known either.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from .frame.declarations import AGE, Column, Kind, Rights, at_any_time
from .frame.fields import ADMIN_ONLY
from .frame.meta import Model, Resource
from .frame.roles import EVERY_VERB

MAX_SEALED = 16_384
RegistryHost = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$", max_length=260)
]


class SecretSpec(Model):
    """What is wanted."""

    type: Literal["Registry"] = Field(default="Registry", description="what it is good for: signing in to a registry")
    registry: RegistryHost = Field(description="of container images: its host, and its port if it has one of its own")
    user: Annotated[str, StringConstraints(pattern=r"^[^:\x00-\x1f\x7f]+$")] = Field(
        max_length=256, description="the account there"
    )
    password: str | None = Field(
        default=None, max_length=8192, description="password or access token; written, and never shown again"
    )
    sealed: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, max_length=MAX_SEALED, description="the password, as it is kept"
    )
    shared: bool = Field(default=False, description="for jobs of the whole tenant, and not only of who made it")
    description: str = Field(default="", max_length=1024)

    @model_validator(mode="before")
    @classmethod
    def _one_of_them(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("password") and not data.get("sealed"):
            raise ValueError("needs a password, or an access token in its place")
        return data


class SecretStatus(Model):
    """What was seen."""

    member: str | None = Field(default=None, description="who of the tenant made it")


class Secret(Resource):
    """Credentials."""

    kind: Literal["Secret"] = "Secret"
    spec: SecretSpec
    status: SecretStatus = Field(default_factory=SecretStatus)

    @property
    def places(self) -> tuple[str, ...]:
        """What its sealed text is bound to; the second as it was before it said whose it is."""
        obj = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return place_of(obj, self.status.member), _place(obj)

    def serves(self, member: str | None) -> Self | None:
        """Itself, if it is for jobs of this member (None: it is not known whose they are)."""
        return self if self.spec.shared or self.status.member == member else None


def place_of(obj: dict[str, Any], member: str | None) -> str:
    """What the sealed text of a Secret is bound to: the object, where the password is sent, and for whose jobs."""
    for_whom = "shared" if obj["spec"].get("shared") else f"of {member}" if member is not None else "of nobody"
    return f"{_place(obj)}\0{for_whom}"


def _place(obj: dict[str, Any]) -> str:
    meta, spec = obj["metadata"], obj["spec"]
    return "\0".join((meta.get("namespace", ""), meta["name"], spec["type"], spec["registry"]))


SECRET = Kind(
    "Secret",
    "secrets",
    Secret,
    namespaced=True,
    short_names=("isecret",),
    columns=(
        Column("Type", ".spec.type"),
        Column("Registry", ".spec.registry"),
        Column("User", ".spec.user"),
        Column("Shared", ".spec.shared", "boolean"),
        Column("Made by", ".status.member"),
        AGE,
        Column("Description", ".spec.description", priority=1),
    ),
    fields=("spec.registry", "spec.user"),
    description="Credentials of a person or tenant, for her jobs only.",
    changes=at_any_time("password", "sealed", "user", "description"),
    rights=Rights(member=EVERY_VERB),
    credential=True,
)
