"""The kinds: models, defaults, validation, states and their transition tables. Pure: no I/O, no clock.

`kinds` is the register that everything generic reads. One module per kind beside it; `meta` holds what they
share, `states` the phases, `selectors` and `expressions` the two small languages, `validation` the border.

Everything here is imported when it is first used: whoever needs one kind does not load all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .deviceclasses import DeviceClass, DeviceClassSpec, PowerModel
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
    from .meta import API_VERSION, Condition, ConditionStatus, Model, ObjectMeta, OwnerReference, Resource
    from .sites import Capacity, Site, SiteSpec, SiteStatus
    from .states import JobPhase, SitePhase, TenantPhase
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
    "API_VERSION": "meta",
    "Array": "jobs",
    "Capacity": "sites",
    "Column": "kinds",
    "Condition": "meta",
    "ConditionStatus": "meta",
    "Dependency": "jobs",
    "DependencyCondition": "jobs",
    "DeviceClass": "deviceclasses",
    "DeviceClassSpec": "deviceclasses",
    "DeviceRequest": "jobs",
    "EnvVar": "jobs",
    "Files": "jobs",
    "Intent": "jobs",
    "Job": "jobs",
    "JobPhase": "states",
    "JobSpec": "jobs",
    "JobStatus": "jobs",
    "KINDS": "kinds",
    "Kind": "kinds",
    "Member": "tenants",
    "Model": "meta",
    "ObjectMeta": "meta",
    "Outputs": "jobs",
    "OwnerReference": "meta",
    "Placement": "jobs",
    "PowerModel": "deviceclasses",
    "Resource": "meta",
    "Resources": "jobs",
    "Retries": "jobs",
    "Role": "tenants",
    "SYSTEM_NAMESPACE": "tenants",
    "Site": "sites",
    "SitePhase": "states",
    "SiteSpec": "sites",
    "SiteStatus": "sites",
    "Tenant": "tenants",
    "TenantPhase": "states",
    "Token": "tokens",
    "Usage": "jobs",
    "kind_named": "kinds",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
