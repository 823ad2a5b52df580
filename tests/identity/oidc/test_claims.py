"""Claims become people and roles by rules."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import Invalid, Unauthenticated
from isthmus.identity.oidc.claims import person_of
from isthmus.resources.frame.validation import validate
from isthmus.resources.identityproviders import IdentityProvider
from isthmus.resources.kinds import IDENTITY_PROVIDER

ENTITLEMENT = "urn:mace:example.org:group:vo.lab:role=member#x"


def provider(**spec: Any) -> IdentityProvider:
    given = {"issuer": "https://id.example.org", "clientId": "isthmus", **spec}
    obj = {"kind": "IdentityProvider", "metadata": {"name": "campus"}, "spec": given}
    return IdentityProvider.model_validate(validate(IDENTITY_PROVIDER, obj))


def test_groups_entitlements_and_domains_give_roles() -> None:
    campus = provider(
        rules=[
            {"claim": "groups", "equals": "physics", "tenant": "physics"},
            {"claim": "groups", "equals": "physics-admins", "tenant": "physics", "role": "admin"},
            {"claim": "eduperson_entitlement", "equals": ENTITLEMENT, "tenant": "lab", "role": "viewer"},
            {"emailDomain": "example.org", "tenant": "guests", "role": "viewer"},
            {"claim": "groups", "equals": "operators", "platform": "viewer"},
        ]
    )
    ada = person_of(campus, {"email": "Ada@Example.org", "groups": ["physics", "physics-admins"]})
    assert (ada.user, dict(ada.grants), ada.platform) == (
        "ada@example.org",
        {"physics": "admin", "guests": "viewer"},
        None,
    )
    bob = person_of(campus, {"email": "bob@elsewhere.org", "eduperson_entitlement": ENTITLEMENT, "groups": "operators"})
    assert (dict(bob.grants), bob.platform) == ({"lab": "viewer"}, "viewer")
    eve = person_of(campus, {"email": "eve@example.org.evil", "groups": ["physics-", "PHYSICS", {"physics": 1}, None]})
    assert (dict(eve.grants), eve.platform) == ({}, None)


def test_an_address_that_was_not_verified_or_is_of_another_domain_names_nobody() -> None:
    campus = provider(domains=["example.org"], rules=[{"emailDomain": "example.org", "tenant": "guests"}])
    for claims in (
        {"email": "ada@example.org", "email_verified": False},
        {"email": "ada@example.org", "email_verified": "no"},
        {"email": "ada@other.org"},
        {"email": "ada@other.org@example.org"},
        {"email": "example.org"},
        {"email": ["ada@example.org"]},
        {"email": "a\n@example.org"},
        {"email": "a" * 300 + "@example.org"},
        {},
    ):
        with pytest.raises(Unauthenticated):
            person_of(campus, claims)


def test_no_provider_names_the_people_of_another() -> None:
    assert person_of(provider(userClaim="sub"), {"sub": "ada@example.org"}).user == "campus:ada@example.org"


def test_who_is_blocked_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="blocked"):
        person_of(provider(blocked=["ada@example.org"]), {"email": "ada@example.org"})


@pytest.mark.parametrize(
    "spec",
    [
        {"issuer": "http://id.example.org"},
        {"issuer": "https://id.example.org?x=1"},
        {"issuer": "https://user:secret@id.example.org"},
        {"issuer": "file:///etc/passwd"},
        {"issuer": "https://id.example.org/\r\nHost: x"},
        {"rules": [{"claim": "groups", "tenant": "physics"}]},
        {"rules": [{"claim": "groups", "equals": "x"}]},
        {"rules": [{"claim": "groups", "equals": "x", "tenant": "physics", "platform": "admin"}]},
        {"rules": [{"claim": "groups", "equals": "x", "emailDomain": "a.org", "tenant": "physics"}]},
    ],
)
def test_providers_that_cannot_be(spec: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        provider(**spec)
