"""A tenant as the cluster sees it: a namespace with roles for its members and a quota.

The namespace carries a label that says whose it is. One that somebody else made is never taken, unless its owner has
put that label on it; and only one that was made here is deleted with its tenant. Roles and bindings are called
`isthmus-…`, and give people who come with kubectl what the same role gives them at Isthmus' own API, except the status,
which only the platform writes.
"""

from __future__ import annotations

import time
from typing import Any

from isthmus.errors import AlreadyExists, Invalid, NotFound
from isthmus.kubernetes.client import KubernetesClient
from isthmus.resources.kinds import KINDS
from isthmus.resources.schemas.crds import MANAGED_BY
from isthmus.resources.tenants import Role, Tenant

Object = dict[str, Any]
TENANT_LABEL = "isthmus.dev/tenant"
_RBAC = "rbac.authorization.k8s.io"
_LOOK_AGAIN, _STILL_THERE = 600.0, 30.0
"""Seconds between looks at everything of a tenant, and at whether its namespace is there at all."""
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


class ClusterSpaces:
    """The namespaces of tenants in one cluster."""

    def __init__(self, api: KubernetesClient) -> None:
        self._api = api
        self._kept: dict[str, tuple[str, int | None, float]] = {}
        self._seen: dict[str, float] = {}

    async def make(self, tenant: str) -> None:
        """Make the namespace; raises Invalid when there is one that is not Isthmus' to use."""
        labels = {**MANAGED_BY, TENANT_LABEL: tenant}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant, "labels": labels}}
        try:
            await self._api.send("POST", "/api/v1/namespaces", f"namespace {tenant}", body)
        except AlreadyExists:
            if (await self._labels(tenant)).get(TENANT_LABEL) != tenant:
                raise Invalid(
                    f"the cluster has a namespace {tenant!r} already that is not a tenant's; choose another name, or "
                    f"let Isthmus use it: kubectl label namespace {tenant} {TENANT_LABEL}={tenant}"
                ) from None

    async def keep(self, tenant: Tenant) -> None:
        """Namespace, roles, bindings and quota as the tenant says; looked at anew when it changed, or now and then."""
        now, known = time.monotonic(), self._kept.get(tenant.name)
        same = known is not None and known[:2] == (tenant.uid, tenant.metadata.generation)
        if known and same and now - known[2] < _LOOK_AGAIN:
            if now - self._seen[tenant.name] < _STILL_THERE or await self._is_there(tenant.name):
                return
            self._kept.pop(tenant.name, None)  # somebody deleted it: tried until it is there again
        await self.make(tenant.name)
        for path, obj in contents(tenant):
            await self._put(path, obj)
        if not _quota(tenant):
            await self._drop(f"/api/v1/namespaces/{tenant.name}/resourcequotas/isthmus")
        self._seen[tenant.name] = time.monotonic()
        self._kept[tenant.name] = (tenant.uid, tenant.metadata.generation, self._seen[tenant.name])

    async def remove(self, tenant: str) -> None:
        """The namespace if it was made here; else what we put into it."""
        self._kept.pop(tenant, None)
        self._seen.pop(tenant, None)
        try:
            labels = await self._labels(tenant)
        except NotFound:
            return
        if labels.get(TENANT_LABEL) != tenant:
            return
        if labels.get("app.kubernetes.io/managed-by") == MANAGED_BY["app.kubernetes.io/managed-by"]:
            await self._drop(f"/api/v1/namespaces/{tenant}")
            return
        for role in Role:
            for plural in ("rolebindings", "roles"):
                await self._drop(f"/apis/{_RBAC}/v1/namespaces/{tenant}/{plural}/isthmus-{role}")
        await self._drop(f"/api/v1/namespaces/{tenant}/resourcequotas/isthmus")

    async def _is_there(self, tenant: str) -> bool:
        try:
            found = await self._api.get(f"/api/v1/namespaces/{tenant}", f"namespace {tenant}")
        except NotFound:
            return False
        self._seen[tenant] = time.monotonic()
        return "deletionTimestamp" not in found["metadata"]

    async def _labels(self, namespace: str) -> dict[str, str]:
        found = await self._api.get(f"/api/v1/namespaces/{namespace}", f"namespace {namespace}")
        labels: dict[str, str] = found["metadata"].get("labels") or {}
        return labels

    async def _put(self, path: str, obj: Object) -> None:
        """Make or replace an object of our own name. Nothing is written where nothing differs."""
        name = f"{obj['kind']} {obj['metadata']['name']}"
        whole = f"{path}/{obj['metadata']['name']}"
        try:
            found = await self._api.get(whole, name)
        except NotFound:
            await self._api.send("POST", path, name, obj)
            return
        parts = obj.keys() - {"metadata", "apiVersion", "kind"}
        if any((found.get(part) or None) != (obj[part] or None) for part in parts):
            meta = {**obj["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
            await self._api.send("PUT", whole, name, {**obj, "metadata": meta})

    async def _drop(self, path: str) -> None:
        try:
            await self._api.send("DELETE", path, path)
        except NotFound:
            return


def contents(tenant: Tenant) -> list[tuple[str, Object]]:
    """What a tenant's namespace holds, each with the path of its like. Pure."""
    place = f"/apis/{_RBAC}/v1/namespaces/{tenant.name}"
    found: list[tuple[str, Object]] = []
    for role in Role:
        users = [m.user for m in tenant.spec.members if m.role is role]
        name = f"isthmus-{role}"
        meta = {"name": name, "namespace": tenant.name, "labels": dict(MANAGED_BY)}
        grant = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": _rules(role)}
        subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in users]
        ref = {"apiGroup": _RBAC, "kind": "Role", "name": name}
        binding = {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": ref}
        found.append((f"{place}/roles", grant))
        found.append((f"{place}/rolebindings", {**binding, "subjects": subjects}))
    if hard := _quota(tenant):
        meta = {"name": "isthmus", "namespace": tenant.name, "labels": dict(MANAGED_BY)}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        found.append((f"/api/v1/namespaces/{tenant.name}/resourcequotas", quota))
    return found


def _rules(role: Role) -> list[Object]:
    """What the kinds give to the role and to those below it, a rule for each group of kinds and set of verbs."""
    below = list(Role)[: list(Role).index(role) + 1]
    found: dict[tuple[str, frozenset[str]], list[str]] = {}
    for kind in KINDS.values():
        verbs = frozenset[str]().union(*(kind.rights.of(lower) for lower in below))
        if kind.namespaced and kind.served and verbs:
            found.setdefault((kind.group, verbs), []).append(kind.plural)
    return [
        {"apiGroups": [group], "resources": plurals, "verbs": [verb for verb in _VERBS if verb in verbs]}
        for (group, verbs), plurals in found.items()
    ]


def _quota(tenant: Tenant) -> dict[str, str]:
    """What pods in the namespace may ask for; jobs at other sites are held to the quota by placement."""
    quota = tenant.spec.quota
    named = {"requests.cpu": quota.cpus, "requests.memory": quota.memory}
    return {name: amount for name, amount in named.items() if amount}
