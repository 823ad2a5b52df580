"""The kinds: models, defaults, validation, states and their transition tables. Pure: no I/O, no clock.

`kinds` is the register that everything generic reads, with one module per kind beside it. `frame` holds what every
kind is made of, `work` what those that run work share, `schemas` what is generated from the models.

Everything here is imported when it is first used: whoever needs one kind does not load all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .deviceclasses import DeviceClass, DeviceClassSpec, PowerModel
    from .frame.meta import API_VERSION, Condition, ConditionStatus, Model, ObjectMeta, OwnerReference, Resource
    from .frame.states import JobPhase, SitePhase, TenantPhase
    from .jobs import (
        Array,
        Dependency,
        DependencyCondition,
        DeviceRequest,
        EnvVar,
        Files,
        Intent,
        Job,
        JobSpec,
        JobStatus,
        Outputs,
        Placement,
        Resources,
        Retries,
        Usage,
    )
    from .kinds import KINDS, Column, Kind, kind_named
    from .sites import Capacity, Site, SiteSpec, SiteStatus
    from .tenants import SYSTEM_NAMESPACE, Member, Role, Tenant
    from .tokens import Token

__all__ = [
    "API_VERSION",
    "KINDS",
    "SYSTEM_NAMESPACE",
    "Array",
    "Capacity",
    "Column",
    "Condition",
    "ConditionStatus",
    "Dependency",
    "DependencyCondition",
    "DeviceClass",
    "DeviceClassSpec",
    "DeviceRequest",
    "EnvVar",
    "Files",
    "Intent",
    "Job",
    "JobPhase",
    "JobSpec",
    "JobStatus",
    "Kind",
    "Member",
    "Model",
    "ObjectMeta",
    "Outputs",
    "OwnerReference",
    "Placement",
    "PowerModel",
    "Resource",
    "Resources",
    "Retries",
    "Role",
    "Site",
    "SitePhase",
    "SiteSpec",
    "SiteStatus",
    "Tenant",
    "TenantPhase",
    "Token",
    "Usage",
    "kind_named",
]

_PLACES = {
    "API_VERSION": "frame.meta",
    "Array": "jobs",
    "Capacity": "sites",
    "Column": "kinds",
    "Condition": "frame.meta",
    "ConditionStatus": "frame.meta",
    "Dependency": "jobs",
    "DependencyCondition": "jobs",
    "DeviceClass": "deviceclasses",
    "DeviceClassSpec": "deviceclasses",
    "DeviceRequest": "jobs",
    "EnvVar": "jobs",
    "Files": "jobs",
    "Intent": "jobs",
    "Job": "jobs",
    "JobPhase": "frame.states",
    "JobSpec": "jobs",
    "JobStatus": "jobs",
    "KINDS": "kinds",
    "Kind": "kinds",
    "Member": "tenants",
    "Model": "frame.meta",
    "ObjectMeta": "frame.meta",
    "Outputs": "jobs",
    "OwnerReference": "frame.meta",
    "Placement": "jobs",
    "PowerModel": "deviceclasses",
    "Resource": "frame.meta",
    "Resources": "jobs",
    "Retries": "jobs",
    "Role": "tenants",
    "SYSTEM_NAMESPACE": "tenants",
    "Site": "sites",
    "SitePhase": "frame.states",
    "SiteSpec": "sites",
    "SiteStatus": "sites",
    "Tenant": "tenants",
    "TenantPhase": "frame.states",
    "Token": "tokens",
    "Usage": "jobs",
    "kind_named": "kinds",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
