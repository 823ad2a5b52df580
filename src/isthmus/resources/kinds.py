"""The register of kinds: what each is called, where it lives, how it is shown.

Everything that treats kinds alike (store, API, discovery, tables, schemas, command line, documentation) reads
this register. A new kind is a model and one entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel

from isthmus.errors import NotFound

from .deviceclasses import DeviceClass
from .events import Event
from .experiments import Experiment
from .jobs import Job
from .leases import Lease
from .meta import GROUP, VERSION
from .profiles import Profile
from .sites import Site
from .tenants import Tenant
from .tokens import Token


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a path into the object. Priority above 0 shows only in wide output."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object."""

    name: str
    plural: str
    model: type[BaseModel]
    namespaced: bool
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    fields: tuple[str, ...] = ()
    """Paths that field selectors may name, beside metadata.name and metadata.namespace."""
    group: str = GROUP
    version: str = VERSION
    has_status: bool = True
    categories: tuple[str, ...] = ("isthmus",)
    served: bool = True
    """Whether the API offers it; the others are for the platform's own use."""
    scale: tuple[str, str] | None = None
    """Of kinds with replicas: the paths of the number wanted and of the number seen, such as `.spec.replicas`."""
    description: str = field(default="")

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The name in lower case."""
        return self.name.lower()

    @property
    def list_kind(self) -> str:
        """What a list of them is called."""
        return f"{self.name}List"

    @property
    def resource(self) -> str:
        """`plural.group`, as kubectl and the store write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def selectable(self, obj: Mapping[str, Any]) -> dict[str, str]:
        """The values that field selectors see."""
        return {path: text for path in self.fields if (text := _at(obj, _parts(path))) is not None}


@cache
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _at(obj: Mapping[str, Any], parts: tuple[str, ...]) -> str | None:
    value: Any = obj
    for part in parts:
        if not isinstance(value, dict) or (value := value.get(part)) is None:
            return None
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

JOB = Kind(
    "Job",
    "jobs",
    Job,
    namespaced=True,
    short_names=("ijob", "ijobs"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Site", ".status.site"),
        Column("Exit", ".status.exitCode", "integer"),
        Column("Reason", ".status.reason"),
        _AGE,
        Column("Started", ".status.startedAt", "date", priority=1),
        Column("Finished", ".status.finishedAt", "date", priority=1),
        Column("Attempt", ".status.attempt", "integer", priority=1),
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "status.site", "spec.priority", "spec.intent"),
    description="Work that runs to completion.",
)
EXPERIMENT = Kind(
    "Experiment",
    "experiments",
    Experiment,
    namespaced=True,
    short_names=("iexp",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Runs", ".status.runs.total", "integer"),
        Column("Active", ".status.runs.active", "integer"),
        Column("Succeeded", ".status.runs.succeeded", "integer"),
        Column("Failed", ".status.runs.failed", "integer"),
        Column("Best", ".status.best", "integer"),
        _AGE,
        Column("Method", ".spec.search.method", priority=1),
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "spec.intent"),
    description="One workload over a matrix of devices and parameters, compared.",
)
SITE = Kind(
    "Site",
    "sites",
    Site,
    namespaced=False,
    short_names=("isite",),
    columns=(
        Column("Driver", ".spec.driver"),
        Column("Phase", ".status.phase"),
        Column("Cpus", ".status.capacity.cpus", "number"),
        Column("Version", ".status.version"),
        _AGE,
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "spec.driver"),
    description="A place that runs work.",
)
DEVICE_CLASS = Kind(
    "DeviceClass",
    "deviceclasses",
    DeviceClass,
    namespaced=False,
    short_names=("idev",),
    columns=(
        Column("Vendor", ".spec.vendor"),
        Column("Architecture", ".spec.architecture"),
        Column("Total", ".status.total", "integer"),
        _AGE,
    ),
    description="A kind of board or accelerator.",
)
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
        _AGE,
    ),
    fields=("status.phase",),
    description="A person or group, and the namespace of what it owns.",
)
TOKEN = Kind(
    "Token",
    "tokens",
    Token,
    namespaced=True,
    short_names=("itoken",),
    columns=(
        Column("User", ".spec.user"),
        Column("Role", ".spec.role"),
        Column("Expires", ".spec.expiresAt"),
        Column("Revoked", ".spec.revoked", "boolean"),
        _AGE,
    ),
    fields=("spec.user", "spec.role"),
    has_status=False,
    description="A bearer credential; the object holds only its hash.",
)
EVENT = Kind(
    "Event",
    "events",
    Event,
    namespaced=True,
    short_names=("ev",),
    group="",
    has_status=False,
    categories=(),
    columns=(
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", ".involvedObject.name"),
        Column("Message", ".message"),
    ),
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
    ),
    description="Something that happened to an object.",
)
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
)
PROFILE = Kind(
    "Profile",
    "profiles",
    Profile,
    namespaced=True,
    has_status=False,
    categories=(),
    served=False,
    description="How long past runs of a workload took.",
)

_ALL = (JOB, EXPERIMENT, SITE, DEVICE_CLASS, TENANT, TOKEN, EVENT, LEASE, PROFILE)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}


def kind_named(word: str) -> Kind:
    """The kind that a person means by `Job`, `jobs`, `job`, `ijob` or `jobs.isthmus.dev`."""
    lowered = word.lower()
    for kind in KINDS.values():
        if lowered in (kind.singular, kind.plural, kind.resource, *kind.short_names):
            return kind
    known = ", ".join(kind.plural for kind in KINDS.values() if kind.served)
    raise NotFound(f"there is no kind called {word!r}; the kinds are {known}")
