"""Tenant: a person or group. Its name is the namespace of everything it owns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from isthmus._kit.quantities import format_bytes, parse_bytes, parse_cpus
from isthmus.errors import invalid_field

from .frame.declarations import AGE, Column, Kind, Navigation, Reference, Rights
from .frame.fields import Cpus, Memory
from .frame.meta import Condition, Model, Name, Resource, ShortName
from .frame.roles import READ, Role
from .frame.states import TENANT_PHASES, TENANT_TRANSITIONS, TenantPhase
from .schemas.crd_rules import TENANT_RULES

__all__ = ["SYSTEM_NAMESPACE", "TENANT", "Member", "Role", "Tenant"]

SYSTEM_NAMESPACE = "isthmus-system"
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESERVED = re.compile(r"isthmus-system|isthmus-.*|kube-.*")


STORAGE_USED = "of storage is used"
_SHARES = 16
_LEAST_MEMORY = 256 * 2**20


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
    priority: int | None = Field(
        default=None, ge=0, le=1_000_000, description="highest priority of its jobs; none means by role"
    )
    memory_per_cpu: Memory | None = Field(
        default=None,
        description="where memory is limited, what a job that asks for none gets and counts with, for each of its "
        "cpus; none means memory divided by cpus, or by 16 where cpus are not limited",
    )
    log: Memory | None = Field(
        default=None, description="of each log of a job at local sites; a longer one loses its middle; none: the site's"
    )
    storage: Memory | None = Field(
        default=None,
        description="of files sent, outputs and logs kept, and working folders at local sites, together; as they lie "
        "on the server's disk. When it is used no files are taken and no jobs start. The working folder and the "
        "outputs of each job are held to it too",
    )

    @property
    def storage_bytes(self) -> int | None:
        """Bytes of files and outputs."""
        return parse_bytes(self.storage) if self.storage else None

    @property
    def log_bytes(self) -> int:
        """Bytes of each log; 0 where it is not limited."""
        return parse_bytes(self.log) if self.log else 0

    def default_memory(self, milli_cpus: int) -> int:
        """Bytes for a job of so many thousandths of a cpu that asks for no memory; 0: this quota does not limit it.

        Without it, such a job would count for nothing and use as much as the machine has.
        """
        whole = self.memory_bytes
        if whole is None:
            return 0
        if self.memory_per_cpu:
            share = parse_bytes(self.memory_per_cpu) * milli_cpus // 1000
        else:
            share = whole * milli_cpus // (self.milli_cpus or _SHARES * 1000)
        return min(max(share, _LEAST_MEMORY), whole)

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


class StorageUse(Model):
    """What a tenant takes of the server's disk, as it was last measured."""

    files_bytes: int = Field(default=0, ge=0, description="files sent and outputs kept")
    logs_bytes: int = Field(default=0, ge=0, description="logs of its jobs, but for those that lie at Slurm sites")
    folders_bytes: int = Field(default=0, ge=0, description="working folders of jobs at local sites, while they run")

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.files_bytes + self.logs_bytes + self.folders_bytes


class TenantStatus(Model):
    """What was seen."""

    phase: TenantPhase = TenantPhase.ACTIVE
    uid_number: int | None = Field(default=None, description="the uid its jobs get where it has no account")
    active_jobs: int = 0
    storage: StorageUse | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Tenant(Resource):
    """A person or group."""

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec = Field(default_factory=TenantSpec)
    status: TenantStatus = Field(default_factory=TenantStatus)

    @property
    def storage_full(self) -> str | None:
        """Which quota of storage is used, and by what; None if there is room."""
        limit, used = self.spec.quota.storage_bytes, self.status.storage
        if limit is None or used is None or used.total_bytes < limit:
            return None
        return f"{self.spec.quota.storage} {STORAGE_USED} ({used_by(used)})"


def full_storage(tenants: Iterable[Tenant]) -> dict[str, str]:
    """Of tenants whose storage is used, what takes it."""
    return {tenant.name: used for tenant in tenants if (used := tenant.storage_full)}


def used_by(used: StorageUse) -> str:
    """What takes the room, in words; what takes none is left out."""
    parts = (
        (used.files_bytes, "files and outputs"),
        (used.logs_bytes, "logs"),
        (used.folders_bytes, "folders of running jobs"),
    )
    return ", ".join(f"{what} {format_bytes(size)}" for size, what in parts if size) or "nothing"


def _check_name(tenant: Mapping[str, Any]) -> None:
    name = tenant["metadata"]["name"]
    if not _DNS_LABEL.fullmatch(name):
        raise invalid_field(
            "metadata.name",
            f"{name[:80]!r} cannot be a tenant's name, which is a namespace: use a-z, 0-9 and -, at most 63 characters",
        )
    if _RESERVED.fullmatch(name):
        raise invalid_field("metadata.name", f"{name!r} is reserved for the platform; choose another")


TENANT = Kind(
    "Tenant",
    "tenants",
    Tenant,
    namespaced=False,
    short_names=("itenant",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Jobs", ".status.activeJobs", "integer"),
        Column("Description", ".spec.description"),
        AGE,
    ),
    fields=("status.phase",),
    description="A person or group, and the namespace of what it owns.",
    phases=TENANT_PHASES,
    transitions=TENANT_TRANSITIONS,
    admit=(_check_name,),
    crd_rules=TENANT_RULES,
    rights=Rights(
        everybody=frozenset({"list", "watch"}),  # filtered to the caller's own
        viewer=READ,
        admin=frozenset({"update", "patch"}),
        by_name=True,
        fields=frozenset({"members", "description"}),
    ),
    refers=(Reference("spec.sites[]", "Site"), Reference("spec.devices[]", "DeviceClass")),
    navigation=Navigation("Tenants", "t"),
)
