"""An API server made a store of Isthmus, for tests: our kinds, some namespaces, and nothing left of earlier tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from isthmus.errors import AlreadyExists, NotFound, StoreUnavailable
from isthmus.kubernetes import kubeconfigs
from isthmus.kubernetes.answers import STORE
from isthmus.kubernetes.client import MERGE, KubernetesClient
from isthmus.resources.kinds import EVENT, LEASE, Kind
from isthmus.resources.schemas.crds import custom_kinds, custom_resources
from isthmus.store.base import Key, Query
from isthmus.store.kubernetes.listing import list_all
from isthmus.store.kubernetes.shaping import path_of
from isthmus.store.kubernetes.spaces import TENANT_LABEL

NAMESPACES = ("isthmus-system", "ada", "bob", "a", "b", "n0", "n1", "n2")


def calling(kubeconfig: Path) -> KubernetesClient:
    """Calls to an API server."""
    return KubernetesClient(kubeconfigs.load(kubeconfig), meanings=STORE)


async def settled(kubeconfig: Path) -> None:
    """Make a new API server a store."""
    async with calling(kubeconfig) as api:
        await define(api)
        await make_namespaces(api)
        free = {"metadata": {"labels": {TENANT_LABEL: "default"}}}
        await api.send("PATCH", "/api/v1/namespaces/default", "default", free, content=MERGE)


async def emptied(kubeconfig: Path) -> None:
    """Take away what earlier tests left."""
    async with calling(kubeconfig) as api:
        await clean(api)


async def define(api: KubernetesClient, minor: int = 20) -> None:
    """Define our kinds, and wait until the server serves them."""
    for definition in custom_resources(minor):
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        try:
            await api.send("POST", path, definition["metadata"]["name"], definition)
        except AlreadyExists:
            continue
    for kind in custom_kinds():
        await _served(api, kind)


async def make_namespaces(api: KubernetesClient, names: Iterable[str] = NAMESPACES) -> None:
    """Make namespaces for tenants of these names, if they are not there."""
    for name in names:
        meta = {"name": name, "labels": {TENANT_LABEL: name}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        try:
            await api.send("POST", "/api/v1/namespaces", name, body)
        except AlreadyExists:
            continue


async def clean(api: KubernetesClient) -> None:
    """Remove all objects of our kinds, held by finalizers or not, our events, and the platform's own leases."""
    for kind in (*custom_kinds(), EVENT, LEASE):
        namespace = "isthmus-system" if kind is LEASE else None
        records = (await list_all(api, Query(kind, namespace), 500)).records
        for record in records:
            if record.obj["metadata"].get("finalizers"):
                await _let_go(api, kind, record.key)
        for place in {record.key.namespace for record in records}:
            await api.send("DELETE", path_of(kind, place), kind.plural, {"propagationPolicy": "Background"})


async def _let_go(api: KubernetesClient, kind: Kind, key: Key) -> None:
    free = {"metadata": {"finalizers": None}}
    path = path_of(kind, key.namespace, key.name)
    try:
        await api.send("PATCH", path, str(key), free, content=MERGE)
    except NotFound:
        return


async def _served(api: KubernetesClient, kind: Kind) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await api.get(path_of(kind, None), kind.plural, {"limit": 1})
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)
