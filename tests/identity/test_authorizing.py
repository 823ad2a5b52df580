from __future__ import annotations

import itertools

import pytest

from isthmus.identity import Caller, allowed
from isthmus.identity.authorizing import EVERY_VERB, READ, WRITE, rules_in, visible_tenants
from isthmus.resources.kinds import KINDS
from isthmus.resources.tenants import Role

ROLES = list(Role)
NAMESPACED = [kind.plural for kind in KINDS.values() if kind.namespaced]


def _caller(role: Role, tenant: str = "physics") -> Caller:
    return Caller("ada", {tenant: role})


@pytest.mark.parametrize(
    ("role", "verb", "resource"), list(itertools.product(ROLES, sorted(EVERY_VERB), [*NAMESPACED, "files"]))
)
def test_nothing_is_allowed_in_a_foreign_tenant_or_in_all(role: Role, verb: str, resource: str) -> None:
    for namespace in ("chemistry", "isthmus-system", ""):
        for subresource in ("", "status", "log"):
            assert not allowed(_caller(role), verb, resource, namespace, "x", subresource)


@pytest.mark.parametrize("role", ROLES)
def test_no_tenant_role_reaches_another_tenant_object(role: Role) -> None:
    caller = _caller(role)
    for resource, verb in itertools.product(("tenants", "namespaces"), sorted(WRITE | {"get"})):
        assert not allowed(caller, verb, resource, "", "chemistry")
    assert allowed(caller, "get", "tenants", "", "physics")
    assert allowed(caller, "list", "tenants", "")
    assert visible_tenants(caller) == {"physics"}


def test_what_each_role_may_do_at_home() -> None:
    def verbs(role: Role, resource: str, subresource: str = "") -> set[str]:
        return {v for v in EVERY_VERB if allowed(_caller(role), v, resource, "physics", "x", subresource)}

    assert verbs(Role.VIEWER, "jobs") == READ
    assert verbs(Role.MEMBER, "jobs") == EVERY_VERB
    assert verbs(Role.ADMIN, "jobs") == EVERY_VERB
    assert verbs(Role.VIEWER, "files") == READ
    assert "create" in verbs(Role.MEMBER, "files")
    for role in ROLES:
        assert verbs(role, "jobs", "status") == READ
        assert verbs(role, "jobs", "log") == READ
        assert verbs(role, "events") == READ
        assert verbs(role, "leases") == set()
        assert verbs(role, "sites") == READ
        assert verbs(role, "deviceclasses") == READ
        assert verbs(role, "sites", "status") == READ
    assert verbs(Role.VIEWER, "tokens") == verbs(Role.MEMBER, "tokens") == set()
    assert verbs(Role.ADMIN, "tokens") == EVERY_VERB
    assert verbs(Role.ADMIN, "tokens", "status") == READ


def test_only_admins_change_their_own_tenant() -> None:
    for role in ROLES:
        may = {v for v in WRITE if allowed(_caller(role), v, "tenants", "", "physics")}
        assert may == ({"update", "patch"} if role is Role.ADMIN else set())
        assert not allowed(_caller(role), "update", "tenants", "", "physics", "status")


def test_platform_roles_hold_everywhere() -> None:
    viewer, member, admin = (Caller("root", {}, role) for role in ROLES)
    assert allowed(viewer, "list", "jobs", "")
    assert not allowed(viewer, "create", "jobs", "physics")
    assert not allowed(viewer, "list", "tokens", "")
    assert allowed(member, "create", "jobs", "physics")
    assert not allowed(member, "create", "sites", "")
    assert not allowed(member, "create", "tenants", "", "x")
    assert allowed(admin, "patch", "jobs", "physics", "x", "status")
    assert allowed(admin, "create", "tenants", "")
    assert visible_tenants(viewer) is None


def test_the_higher_of_two_roles_counts() -> None:
    assert Caller("ada", {"physics": Role.VIEWER}, Role.MEMBER).role_in("physics") is Role.MEMBER
    assert Caller("ada", {"physics": Role.ADMIN}, Role.VIEWER).role_in("physics") is Role.ADMIN
    assert Caller("ada", {"physics": Role.ADMIN}).role_in("chemistry") is None


@pytest.mark.parametrize("role", ROLES)
def test_the_rules_told_are_the_rules_kept(role: Role) -> None:
    caller = _caller(role)
    for what, verbs in rules_in(caller, "physics").items():
        resource, _, subresource = what.partition("/")
        name = "physics" if resource in ("tenants", "namespaces") else "x"
        for verb in verbs:
            assert allowed(caller, verb, resource, "physics", name, subresource.replace("*", "log"))
    assert "tokens" not in rules_in(caller, "chemistry")
    assert "jobs" not in rules_in(caller, "chemistry")
