"""The register of kinds: every declaration, by the kind's name.

A kind is declared beside its model; here it is added to the list, and everything general knows it. What is made of all
kinds (routes, tables of rights, orders) is a `derived` function: made once, and again when a kind is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from isthmus.errors import NotFound

from .deviceclasses import DEVICE_CLASS
from .events import EVENT
from .experiments import EXPERIMENT
from .frame.declarations import Column, Kind, Navigation, Reference, Rights
from .hosts import HOST
from .identityproviders import IDENTITY_PROVIDER
from .instances import INSTANCE
from .jobs import JOB
from .leases import LEASE
from .profiles import PROFILE
from .secrets import SECRET
from .sites import SITE
from .templates import TEMPLATE
from .tenants import TENANT
from .tokens import TOKEN
from .usage_records import USAGE_RECORD

__all__ = [
    "DEVICE_CLASS",
    "EVENT",
    "EXPERIMENT",
    "HOST",
    "IDENTITY_PROVIDER",
    "INSTANCE",
    "JOB",
    "KINDS",
    "LEASE",
    "PROFILE",
    "SECRET",
    "SITE",
    "TEMPLATE",
    "TENANT",
    "TOKEN",
    "USAGE_RECORD",
    "Column",
    "Kind",
    "Navigation",
    "Reference",
    "Rights",
    "derived",
    "kind_named",
    "of_tenants",
    "owners_first",
    "register",
]

P = ParamSpec("P")
T = TypeVar("T")

_ALL = (
    JOB, EXPERIMENT, INSTANCE, TEMPLATE, SITE, DEVICE_CLASS, HOST, TENANT, TOKEN, SECRET, IDENTITY_PROVIDER, EVENT,
    LEASE, PROFILE, USAGE_RECORD,
)  # fmt: skip
_known: dict[str, Kind] = {kind.name: kind for kind in _ALL}
KINDS: Mapping[str, Kind] = MappingProxyType(_known)
_forget: list[Callable[[], None]] = []


def derived(make: Callable[P, T]) -> Callable[P, T]:
    """A function of all kinds whose answers are kept until a kind is registered."""
    kept = cache(make)
    _forget.append(kept.cache_clear)
    return kept  # type: ignore[return-value]


@contextmanager
def register(kind: Kind) -> Iterator[Kind]:
    """Have one more kind in this process, for as long as the block lasts."""
    words = {kind.singular, kind.plural, *kind.short_names}
    taken = [other.name for other in _known.values() if words & {other.singular, other.plural, *other.short_names}]
    if taken:
        raise ValueError(f"{kind.name} and {taken[0]} share a name")
    _known[kind.name] = kind
    _forget_all()
    try:
        yield kind
    finally:
        del _known[kind.name]
        _forget_all()


def _forget_all() -> None:
    for forget in _forget:
        forget()


def kind_named(word: str) -> Kind:
    """The kind that a person means by `Job`, `jobs`, `job`, `ijob` or `jobs.isthmus.dev`."""
    lowered = word.lower()
    for kind in KINDS.values():
        if lowered in (kind.singular, kind.plural, kind.resource, *kind.short_names):
            return kind
    known = ", ".join(kind.plural for kind in KINDS.values() if kind.served)
    raise NotFound(f"there is no kind called {word!r}; the kinds are {known}")


@derived
def owners_first() -> tuple[Kind, ...]:
    """All kinds, each after those whose uid its objects carry: their owners and what they refer to by uid.

    What lives in a tenant's namespace comes after the tenants. Among equals the order is that of the register.
    """
    waiting, found = dict(_known), list[Kind]()
    while waiting:
        ready = [kind for kind in waiting.values() if not _before(kind) & waiting.keys() - {kind.name}]
        if not ready:
            raise ValueError(f"these kinds own each other in a circle: {', '.join(waiting)}")
        found.append(ready[0])
        del waiting[ready[0].name]
    return tuple(found)


def _before(kind: Kind) -> set[str]:
    above = {reference.kind for reference in kind.refers if reference.by_uid}
    above |= {other.name for other in _known.values() if kind.name in other.owns}
    return above | ({TENANT.name} if kind.namespaced else set())


@derived
def of_tenants() -> tuple[Kind, ...]:
    """What goes with its tenant: credentials first, so that nobody can go on working; then owners before the rest."""
    found = [kind for kind in owners_first() if kind.namespaced and not kind.only_in]
    return tuple(sorted(found, key=lambda kind: not kind.credential))
