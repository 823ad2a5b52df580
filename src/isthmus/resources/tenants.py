"""Tenant: a person or group. Its name is the namespace of everything it owns."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, field_validator

from isthmus._kit.quantities import parse_bytes, parse_cpus

from .fields import Cpus, Memory
from .meta import Condition, Model, Name, Resource, ShortName
from .states import TenantPhase

SYSTEM_NAMESPACE = "isthmus-system"


class Role(StrEnum):
    """What a member may do: viewers read, members also run work, admins also manage tokens and members."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


class Member(Model):
    """One person of the tenant."""

    user: str = Field(min_length=1, max_length=253)
    role: Role = Role.MEMBER


class Quota(Model):
    """How much of everything the tenant's active jobs may take together, over all sites."""

    jobs: int | None = Field(default=None, ge=0, description="jobs that hold room at once")
    cpus: Cpus | None = None
    memory: Memory | None = None
    devices: dict[str, int] = Field(default_factory=dict)

    @property
    def milli_cpus(self) -> int | None:
        """Thousandths of a cpu."""
        return parse_cpus(self.cpus) if self.cpus else None

    @property
    def memory_bytes(self) -> int | None:
        """Bytes."""
        return parse_bytes(self.memory) if self.memory else None


class LocalAccount(Model):
    """Under whom the tenant's jobs run on local sites, when the control plane is root."""

    user: str | None = Field(default=None, max_length=64, description="an existing account; never root")

    @field_validator("user")
    @classmethod
    def _never_root(cls, user: str | None) -> str | None:
        if user is not None and user in ("root", "0"):
            raise ValueError("jobs never run as root; name another account, or none to get a uid of its own")
        return user


class TenantSpec(Model):
    """What is wanted."""

    description: str = ""
    suspended: bool = False
    members: list[Member] = Field(default_factory=list, max_length=10_000)
    quota: Quota = Field(default_factory=Quota)
    sites: list[Name] = Field(default_factory=list, description="the only sites it may use; none means all")
    devices: list[ShortName] = Field(default_factory=list, description="the only classes it may use; none means all")
    local_account: LocalAccount | None = None
    budget: float | None = Field(default=None, ge=0, description="kept for the accounting to come")


class TenantStatus(Model):
    """What was seen."""

    phase: TenantPhase = TenantPhase.ACTIVE
    uid_number: int | None = Field(default=None, description="the uid its jobs get where it has no account")
    active_jobs: int = 0
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Tenant(Resource):
    """A person or group."""

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec = Field(default_factory=TenantSpec)
    status: TenantStatus = Field(default_factory=TenantStatus)
