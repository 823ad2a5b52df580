"""A tenant's namespace in the cluster.

Everything of a tenant lives in a namespace that must exist first. It carries a label that says whose it is; one that
somebody else made is never taken, unless its owner has put that label on it.
"""

from __future__ import annotations

from isthmus.errors import AlreadyExists, Invalid
from isthmus.resources.crds import MANAGED_BY

from .client import Api

TENANT_LABEL = "isthmus.dev/tenant"


async def make_space(api: Api, tenant: str) -> None:
    """Make the namespace of a tenant; raises Invalid when there is one that is not Isthmus' to use."""
    labels = {**MANAGED_BY, TENANT_LABEL: tenant}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant, "labels": labels}}
    try:
        await api.send("POST", "/api/v1/namespaces", f"namespace {tenant}", body)
    except AlreadyExists:
        found = await api.get(f"/api/v1/namespaces/{tenant}", f"namespace {tenant}")
        if (found["metadata"].get("labels") or {}).get(TENANT_LABEL) != tenant:
            raise Invalid(
                f"the cluster has a namespace {tenant!r} already that is not a tenant's; choose another name, or let "
                f"Isthmus use it: kubectl label namespace {tenant} {TENANT_LABEL}={tenant}"
            ) from None
