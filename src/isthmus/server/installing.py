"""Installing into a cluster: every object by server-side apply, so that it can be repeated and takes nothing of others.

A field that somebody else has set to something else is a conflict, which is reported and not overruled. The admin's
token is drawn here, once, and kept in a secret: it is never written anywhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from isthmus._kit.ids import suffix
from isthmus.errors import AlreadyExists, StoreUnavailable
from isthmus.kubernetes.answers import STORE
from isthmus.kubernetes.client import APPLY, KubernetesClient
from isthmus.kubernetes.kubeconfigs import ClusterAccess
from isthmus.resources.schemas.crds import MANAGED_BY, NEWEST, OLDEST, custom_kinds
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.resources.tokens import new_secret
from isthmus.store.kubernetes.shaping import path_of

from .manifests import ADMIN_SECRET

_PLURALS = {"PersistentVolumeClaim": "persistentvolumeclaims"}
_PATIENCE = 60.0


async def server_minor(access: ClusterAccess) -> int:
    """Which 1.x the server is, between the oldest and the newest that we know."""
    async with KubernetesClient(access, meanings=STORE) as api:
        found = await api.get("/version", "the version of the server")
    digits = "".join(char for char in str(found.get("minor", "")) if char.isdigit())
    return min(max(int(digits or OLDEST), OLDEST), NEWEST)


async def install(access: ClusterAccess, objects: Iterable[Mapping[str, Any]], *, dry_run: bool = False) -> list[str]:
    """Apply objects; what was done with each, in words."""
    reported = []
    async with KubernetesClient(access, meanings=STORE) as api:
        for obj in objects:
            reported.append(await _apply(api, obj, dry_run))
            if obj["kind"] == "Namespace" and not dry_run:
                reported.append(await _admin_secret(api))
        if not dry_run:
            await _wait_served(api)
    return reported


async def _apply(api: KubernetesClient, obj: Mapping[str, Any], dry_run: bool) -> str:
    path = _path(obj)
    name = f"{obj['kind'].lower()}/{obj['metadata']['name']}"
    if dry_run and obj["metadata"].get("namespace"):  # the namespace may not be there yet
        return f"{name} would be applied"
    params = {"fieldManager": "isthmus-install", **({"dryRun": "All"} if dry_run else {})}
    await api.send("PATCH", path, name, obj, params, APPLY)
    return f"{name} {'would be applied' if dry_run else 'applied'}"


async def _admin_secret(api: KubernetesClient) -> str:
    _, token, _ = new_secret(f"admin-{suffix(6)}")
    meta = {"name": ADMIN_SECRET, "namespace": SYSTEM_NAMESPACE, "labels": dict(MANAGED_BY)}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"admin.token": token + "\n"}}
    try:
        await api.send("POST", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets", f"secret/{ADMIN_SECRET}", body)
    except AlreadyExists:
        return f"secret/{ADMIN_SECRET} kept"
    return f"secret/{ADMIN_SECRET} made"


async def _wait_served(api: KubernetesClient) -> None:
    """Definitions are served a moment after they are accepted."""
    async with asyncio.timeout(_PATIENCE):
        for kind in custom_kinds():
            while True:
                try:
                    await api.get(path_of(kind, None), kind.plural, {"limit": 1})
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.1)


def _path(obj: Mapping[str, Any]) -> str:
    version, kind, meta = obj["apiVersion"], obj["kind"], obj["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
    return f"{base}{place}/{_PLURALS.get(kind, kind.lower() + 's')}/{meta['name']}"
