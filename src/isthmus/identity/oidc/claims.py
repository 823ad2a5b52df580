"""Claims: from what a provider says of a person to her name and her roles, by the rules of the provider. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.errors import Unauthenticated
from isthmus.identity.callers import RANKS
from isthmus.resources.frame.roles import Role
from isthmus.resources.identityproviders import EMAIL, IdentityProvider

_LONGEST_NAME = 253
_MOST_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom a provider vouches for."""

    user: str
    grants: Mapping[str, Role]
    platform: Role | None


def person_of(provider: IdentityProvider, claims: Mapping[str, Any]) -> Person:
    """Who the claims name, and what the rules give them; raises Unauthenticated."""
    spec = provider.spec
    user = _user(provider, claims)
    if user in spec.blocked:
        raise Unauthenticated(f"{user} was blocked by an administrator")
    grants: dict[str, Role] = {}
    platform: Role | None = None
    domain = _domain(claims)
    for rule in spec.rules:
        if rule.claim is not None:
            fits = any(value == rule.equals for value in _values(claims.get(rule.claim)))
        else:
            fits = domain is not None and domain == rule.email_domain
        if not fits:
            continue
        if rule.platform is not None:
            platform = higher(platform, rule.platform)
        elif rule.tenant is not None:
            grants[rule.tenant] = higher(grants.get(rule.tenant), rule.role)
    return Person(user, grants, platform)


def higher(one: Role | None, other: Role) -> Role:
    """The role that includes the other."""
    return other if one is None or RANKS[other] > RANKS[one] else one


def _user(provider: IdentityProvider, claims: Mapping[str, Any]) -> str:
    spec, named = provider.spec, claims.get(provider.spec.user_claim)
    if not isinstance(named, str) or not named or not named.isprintable() or len(named) > _LONGEST_NAME - 64:
        raise Unauthenticated(f"the token of provider {provider.name} names nobody: it has no claim {spec.user_claim}")
    if spec.user_claim != EMAIL:
        return f"{provider.name}:{named}"
    domain = _domain(claims)
    if domain is None:
        raise Unauthenticated(f"provider {provider.name} has not verified the e-mail address in the token")
    if spec.domains and domain not in spec.domains:
        raise Unauthenticated(f"provider {provider.name} may not name people of {domain}")
    return named.lower()


def _domain(claims: Mapping[str, Any]) -> str | None:
    """The domain of an e-mail address that the provider does not call unverified."""
    email = claims.get(EMAIL)
    if not isinstance(email, str) or claims.get("email_verified", True) not in (True, "true"):
        return None
    name, at, domain = email.rpartition("@")
    return domain.lower() if at and name and "@" not in name and domain else None


def _values(claim: Any) -> Iterator[str]:
    """A claim is one text, or a list of them."""
    found = claim if isinstance(claim, list) else [claim]
    return (value for value in found[:_MOST_VALUES] if isinstance(value, str))
