"""Namespaces: tenants as Kubernetes' core/v1 sees them, so that clients which list namespaces find their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from isthmus.resources.kinds import Column, Kind
from isthmus.resources.tenants import Tenant
from isthmus.store.base import Record

NAMESPACE = Kind(
    "Namespace",
    "namespaces",
    Tenant,
    namespaced=False,
    short_names=("ns",),
    columns=(Column("Status", ".status.phase"), Column("Age", ".metadata.creationTimestamp", "date")),
    fields=("status.phase",),
    group="",
    categories=(),
    description="A tenant, as Kubernetes sees it. Read only: create a Tenant instead.",
)
_KEPT = ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def as_namespace(record: Record) -> Record:
    """The tenant's record as that of a Namespace."""
    metadata = record.obj["metadata"]
    shown: dict[str, Any] = {key: metadata[key] for key in _KEPT if key in metadata}
    shown["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    phase = "Terminating" if "deletionTimestamp" in metadata else "Active"
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": shown,
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": phase},
    }
    return replace(record, data=orjson.dumps(namespace))
