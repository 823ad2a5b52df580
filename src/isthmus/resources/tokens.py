"""Token: a bearer credential of a tenant. The object holds only the hash; the secret never leaves its maker.

The client draws the secret, keeps it, and creates this object with its SHA-256: the server never sees a secret
before it is used. What a user presents is `ist_<name of the token>_<secret>`, so that it is found by name and
compared in constant time. SHA-256 without salt is right here because the secret has 256 random bits.

In the namespace of a tenant a token has a role there. In `isthmus-system` it has the role everywhere, or,
with no role, whatever the memberships of its user give.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from isthmus._kit.ids import suffix

from .frame.declarations import AGE, Column, Kind, Rights
from .frame.meta import Model, Resource, Time
from .frame.roles import EVERY_VERB, Role

PREFIX = "ist_"


class TokenSpec(Model):
    """What is wanted."""

    user: str = Field(min_length=1, max_length=253, description="who presents it")
    role: Role | None = Field(default=None, description="none (isthmus-system only): what the memberships give")
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(description="hash of the secret")
    expires_at: Time | None = Field(default=None, description="none: until it is revoked")
    revoked: bool = False
    description: str = Field(default="", max_length=1024)


class Token(Resource):
    """A bearer credential."""

    kind: Literal["Token"] = "Token"
    spec: TokenSpec


def new_secret(name: str | None = None) -> tuple[str, str, str]:
    """A new credential: the token's name, what its owner keeps, and the hash to store."""
    name = name or f"t{suffix(9)}"
    secret = secrets.token_urlsafe(32)
    return name, f"{PREFIX}{name}_{secret}", hash_secret(secret)


def hash_secret(secret: str) -> str:
    """The hash that is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def split_secret(presented: str) -> tuple[str, str] | None:
    """The token's name and the secret of what somebody presents; None if it is not of our form."""
    if not presented.startswith(PREFIX):
        return None
    name, underscore, secret = presented[len(PREFIX) :].partition("_")
    return (name, secret) if name and underscore and secret else None


TOKEN = Kind(
    "Token",
    "tokens",
    Token,
    namespaced=True,
    short_names=("itoken",),
    columns=(
        Column("User", ".spec.user"),
        Column("Role", ".spec.role"),
        Column("Expires", ".spec.expiresAt"),
        Column("Revoked", ".spec.revoked", "boolean"),
        AGE,
        Column("Description", ".spec.description", priority=1),
    ),
    fields=("spec.user", "spec.role"),
    has_status=False,
    description="A bearer credential; the object holds only its hash.",
    rights=Rights(admin=EVERY_VERB),
    credential=True,
    listing="token list",
)
