"""What each role may do: one table, one pure function.

A role includes the roles below it. A platform role gives the same in every tenant, and platform admins may do
everything. `resource/subresource` names a subresource; `resource/*` any that has no entry of its own. Lists and
watches of tenants are open to everybody because they are filtered to the caller's own (`visible_tenants`).
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.resources.tenants import Role

from .callers import RANKS, Caller, at_least

READ = frozenset({"get", "list", "watch"})
WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})
EVERY_VERB = READ | WRITE

IN_TENANT: Mapping[Role, Mapping[str, frozenset[str]]] = {
    Role.VIEWER: {
        "jobs": READ,
        "jobs/*": READ,
        "experiments": READ,
        "experiments/status": READ,
        "events": READ,
        "files": READ,
        "outputs": READ,
    },
    Role.MEMBER: {"jobs": WRITE, "experiments": WRITE, "files": WRITE},
    Role.ADMIN: {"tokens": EVERY_VERB, "tokens/status": READ},
}
"""Over what lives in a tenant's namespace."""

ON_TENANT: Mapping[Role, Mapping[str, frozenset[str]]] = {
    Role.VIEWER: {"tenants": READ, "tenants/status": READ, "namespaces": READ, "namespaces/status": READ},
    Role.MEMBER: {},
    Role.ADMIN: {"tenants": frozenset({"update", "patch"})},
}
"""Over the tenant itself; which of its fields an admin may change is decided in admission."""

FOR_EVERYBODY: Mapping[str, frozenset[str]] = {
    "sites": READ,
    "sites/status": READ,
    "deviceclasses": READ,
    "deviceclasses/status": READ,
    "tenants": frozenset({"list", "watch"}),
    "namespaces": frozenset({"list", "watch"}),
    "selfsubjectaccessreviews": frozenset({"create"}),
    "selfsubjectrulesreviews": frozenset({"create"}),
    "selfsubjectreviews": frozenset({"create"}),
}
"""Over what belongs to nobody."""

_OWN = ("tenants", "namespaces")


def allowed(caller: Caller, verb: str, resource: str, namespace: str, name: str = "", subresource: str = "") -> bool:
    """Whether the caller may do this. An empty namespace means all of them, or a kind without one."""
    if caller.is_platform_admin:
        return True
    what = f"{resource}/{subresource}" if subresource else resource
    if verb in FOR_EVERYBODY.get(what, ()):
        return True
    if resource in _OWN:
        return _holds(ON_TENANT, caller.role_in(name), verb, what)
    role = caller.role_in(namespace) if namespace else caller.platform
    return _holds(IN_TENANT, role, verb, what)


def visible_tenants(caller: Caller) -> frozenset[str] | None:
    """The tenants the caller may know of; None means all."""
    return None if caller.platform is not None else frozenset(caller.grants)


def rules_in(caller: Caller, namespace: str) -> dict[str, frozenset[str]]:
    """Every `resource/subresource` with the verbs the caller has there, for `kubectl auth can-i --list`."""
    if caller.is_platform_admin:
        return {"*": frozenset({"*"})}
    found: dict[str, frozenset[str]] = dict(FOR_EVERYBODY)
    role = caller.role_in(namespace) if namespace else caller.platform
    for table in (IN_TENANT, ON_TENANT):
        for level, rules in table.items():
            if at_least(role, level):
                for what, verbs in rules.items():
                    found[what] = found.get(what, frozenset()) | verbs
    return found


def _holds(table: Mapping[Role, Mapping[str, frozenset[str]]], role: Role | None, verb: str, what: str) -> bool:
    if role is None:
        return False
    anything = f"{what.partition('/')[0]}/*" if "/" in what else what
    for level, rules in table.items():
        if RANKS[level] <= RANKS[role]:
            verbs = rules.get(what)
            if verb in (rules.get(anything, ()) if verbs is None else verbs):
                return True
    return False
