"""What each role may do: one function over the rights that the kinds declare. Pure.

A role includes the roles below it. A platform role gives the same in every tenant, and platform admins may do
everything. `resource/subresource` names a subresource; `resource/*` any that has no entry of its own. Lists and
watches of tenants are open to everybody because they are filtered to the caller's own (`visible_tenants`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from isthmus.resources.frame.roles import EVERY_VERB, READ, WRITE, Role
from isthmus.resources.kinds import KINDS, TENANT, Kind, derived

from .callers import RANKS, Caller, at_least

__all__ = ["EVERY_VERB", "READ", "WRITE", "allowed", "rules_in", "visible_tenants"]

Table = Mapping[str, frozenset[str]]

_CREATE = frozenset({"create"})
_BESIDES: Mapping[Role, Table] = {
    Role.VIEWER: {"files": READ, "outputs": READ, "usage": READ},
    Role.MEMBER: {"files": WRITE},
}
"""Over what lives in a tenant's namespace and is no kind."""
_FOR_EVERYBODY: Table = {
    "selfsubjectaccessreviews": _CREATE,
    "selfsubjectrulesreviews": _CREATE,
    "selfsubjectreviews": _CREATE,
}


class Tables(NamedTuple):
    """The rights of all kinds."""

    in_tenant: Mapping[Role, Table]
    """Over what lives in a tenant's namespace."""
    on_tenant: Mapping[Role, Table]
    """Over the tenant itself; which of its fields an admin may change is decided in admission."""
    for_everybody: Table
    """Over what belongs to nobody."""
    by_name: frozenset[str]
    """What is called after its tenant."""


@derived
def tables() -> Tables:
    """The rights that the kinds declare, and those over what is no kind."""
    named: dict[str, Kind] = {kind.plural: kind for kind in KINDS.values()}
    named["namespaces"] = TENANT  # the same objects, as Kubernetes' clients know them
    in_tenant: dict[Role, dict[str, frozenset[str]]] = {role: dict(_BESIDES.get(role, {})) for role in Role}
    on_tenant: dict[Role, dict[str, frozenset[str]]] = {role: {} for role in Role}
    everybody = dict(_FOR_EVERYBODY)
    for plural, kind in named.items():
        everybody |= _entries(plural, kind, kind.rights.everybody)
        for role in Role:
            verbs = kind.rights.of(role) & READ if plural == "namespaces" else kind.rights.of(role)
            (on_tenant if kind.rights.by_name else in_tenant)[role].update(_entries(plural, kind, verbs))
    by_name = frozenset(plural for plural, kind in named.items() if kind.rights.by_name)
    return Tables(in_tenant, on_tenant, everybody, by_name)


def _entries(plural: str, kind: Kind, verbs: frozenset[str]) -> dict[str, frozenset[str]]:
    found = {plural: verbs} if verbs else {}
    if "get" in verbs:
        found |= {f"{plural}/{part}": verbs & READ for part in kind.rights.readable}
    return found


def allowed(caller: Caller, verb: str, resource: str, namespace: str, name: str = "", subresource: str = "") -> bool:
    """Whether the caller may do this. An empty namespace means all of them, or a kind without one."""
    if caller.is_platform_admin:
        return True
    known = tables()
    what = f"{resource}/{subresource}" if subresource else resource
    if verb in known.for_everybody.get(what, ()):
        return True
    if resource in known.by_name:
        return _holds(known.on_tenant, caller.role_in(name), verb, what)
    role = caller.role_in(namespace) if namespace else caller.platform
    return _holds(known.in_tenant, role, verb, what)


def visible_tenants(caller: Caller) -> frozenset[str] | None:
    """The tenants the caller may know of; None means all."""
    return None if caller.platform is not None else frozenset(caller.grants)


def rules_in(caller: Caller, namespace: str) -> dict[str, frozenset[str]]:
    """Every `resource/subresource` with the verbs the caller has there, for `kubectl auth can-i --list`."""
    if caller.is_platform_admin:
        return {"*": frozenset({"*"})}
    known = tables()
    found: defaultdict[str, frozenset[str]] = defaultdict(frozenset, known.for_everybody)
    role = caller.role_in(namespace) if namespace else caller.platform
    for table in (known.in_tenant, known.on_tenant):
        for level, rules in table.items():
            if at_least(role, level):
                for what, verbs in rules.items():
                    found[what] |= verbs
    return dict(found)


def _holds(table: Mapping[Role, Table], role: Role | None, verb: str, what: str) -> bool:
    if role is None:
        return False
    anything = f"{what.partition('/')[0]}/*" if "/" in what else what
    for level, rules in table.items():
        if RANKS[level] <= RANKS[role]:
            verbs = rules.get(what)
            if verb in (rules.get(anything, ()) if verbs is None else verbs):
                return True
    return False
