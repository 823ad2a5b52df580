"""IdentityProvider: an OpenID Connect provider whose people may sign in, and what its claims give them.

A person is named by one claim of her token. An e-mail address is taken as it is (and not if the provider says that it
was not verified, or if it is of another domain than `domains`); any other claim is put behind the provider's name,
`campus:ada`, so that no provider can name the people of another. Rules turn claims into roles in tenants, or on the
platform. They are looked at whenever a token is, so that whoever leaves a group has lost the role with her next token.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from .frame.declarations import AGE, Column, Kind, Rights
from .frame.meta import Model, Name, Resource
from .frame.roles import Role

ClaimName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_:./-]{0,252}$")]
ScopeName = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,256}$")]
Domain = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
EMAIL = "email"


class ClaimRule(Model):
    """Whoever has this gets that."""

    claim: ClaimName | None = Field(default=None, description="such as groups or eduperson_entitlement")
    equals: str | None = Field(
        default=None, min_length=1, max_length=512, description="what the claim is, or has among others"
    )
    email_domain: Domain | None = Field(default=None, description="in place of a claim: of a verified e-mail address")
    tenant: Name | None = Field(default=None, description="where the role is given")
    role: Role = Role.MEMBER
    platform: Role | None = Field(default=None, description="in place of a tenant: a role everywhere")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.claim is None) != (self.equals is None) or (self.claim is None) == (self.email_domain is None):
            raise ValueError("say whom it is for: claim and equals, or emailDomain")
        if (self.tenant is None) == (self.platform is None):
            raise ValueError("say what it gives: tenant (and role), or platform")
        return self


class IdentityProviderSpec(Model):
    """What is wanted."""

    issuer: str = Field(max_length=512, description="address of the provider, as its tokens name it")
    client_id: str = Field(min_length=1, max_length=256, description="what Isthmus is called at the provider")
    audiences: list[str] = Field(
        default_factory=list, max_length=16, description="tokens for these are taken too; none: for the client only"
    )
    scopes: list[ScopeName] = Field(
        default_factory=list,
        max_length=32,
        description="asked for at sign-in, beside openid, email, profile and offline_access",
    )
    user_claim: ClaimName = Field(default=EMAIL, description="the claim that names a person")
    domains: list[Domain] = Field(
        default_factory=list, max_length=64, description="the only domains of e-mail addresses; none means all"
    )
    rules: list[ClaimRule] = Field(default_factory=list, max_length=1000)
    blocked: list[str] = Field(
        default_factory=list, max_length=10_000, description="people who are refused at once, whatever their token says"
    )
    authorities: str | None = Field(
        default=None, max_length=65_536, description="certificates (PEM) to trust when the provider is asked"
    )
    disabled: bool = Field(default=False, description="nobody signs in by it")

    @field_validator("issuer")
    @classmethod
    def _address(cls, issuer: str) -> str:
        parts = urlsplit(issuer)
        plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        right = (parts.scheme == "https" or plain) and parts.hostname and not (parts.query or parts.fragment)
        if not right or parts.username or re.search(r"[\x00-\x20\x7f]", issuer):
            raise ValueError("must be an https:// address without a query (http:// on this machine only)")
        return issuer


class IdentityProvider(Resource):
    """An OpenID Connect provider."""

    kind: Literal["IdentityProvider"] = "IdentityProvider"
    spec: IdentityProviderSpec


IDENTITY_PROVIDER = Kind(
    "IdentityProvider",
    "identityproviders",
    IdentityProvider,
    namespaced=False,
    short_names=("idp",),
    columns=(
        Column("Issuer", ".spec.issuer"),
        Column("Client", ".spec.clientId"),
        Column("Disabled", ".spec.disabled", "boolean"),
        AGE,
    ),
    has_status=False,
    description="An OpenID Connect provider whose people may sign in, and what its claims give them.",
    rights=Rights(),
)
