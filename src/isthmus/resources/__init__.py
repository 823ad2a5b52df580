"""The kinds: models, defaults, validation, states and their transition tables. Pure: no I/O, no clock.

`kinds` is the register that everything generic reads. One module per kind beside it; `meta` holds what they
share, `states` the phases, `selectors` and `expressions` the two small languages, `validation` the border.
"""

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
