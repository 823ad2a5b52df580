"""Lease: who leads, and until when. The same shape as Kubernetes' coordination/v1 Lease."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .frame.declarations import Kind
from .frame.meta import Model, ObjectMeta, Time
from .tenants import SYSTEM_NAMESPACE


class LeaseSpec(Model):
    """Who holds it and since when."""

    holder_identity: str | None = None
    lease_duration_seconds: int = 15
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: int = 0


class Lease(Model):
    """Who leads."""

    api_version: Literal["coordination.k8s.io/v1"] = "coordination.k8s.io/v1"
    kind: Literal["Lease"] = "Lease"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: LeaseSpec = Field(default_factory=LeaseSpec)


LEASE = Kind(
    "Lease",
    "leases",
    Lease,
    namespaced=True,
    group="coordination.k8s.io",
    has_status=False,
    categories=(),
    served=False,
    description="Who leads.",
    only_in=SYSTEM_NAMESPACE,
)
