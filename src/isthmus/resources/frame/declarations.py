"""The form of a declaration: everything about a kind that is not its model.

Each kind is declared once, beside its model (`JOB = Kind(…)` in `jobs.py`), and `kinds.KINDS` collects them. Whatever
treats kinds alike reads the declaration: API, tables, rights, admission, export and import, clean-up of tenants,
sweeping of files, CRDs, command line, console and documentation.

Paths into objects are names joined by dots, with `[]` for the items of a list and `{}` for the values of a map:
`status.dependencies[].uid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel

from isthmus.resources.schemas.crd_rules import SchemaRule

from .meta import GROUP, VERSION
from .roles import NOTHING, READ, WRITE, Role


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a path into the object. Priority above 0 shows only in wide output."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class Rights:
    """Which verbs each role has. Platform admins have them all; a role has those of the roles below it too."""

    everybody: frozenset[str] = NOTHING
    viewer: frozenset[str] = NOTHING
    member: frozenset[str] = NOTHING
    admin: frozenset[str] = NOTHING
    readable: tuple[str, ...] = ("status",)
    """Subresources that whoever may get the object may read; `*` means any."""
    by_name: bool = False
    """Whether the role that counts is the one in the tenant that the object is called after."""
    fields: frozenset[str] | None = None
    """The only fields of the spec that the roles may change, where platform admins keep the rest; None means all."""

    def of(self, role: Role) -> frozenset[str]:
        """What the role adds to those below it."""
        return {Role.VIEWER: self.viewer, Role.MEMBER: self.member, Role.ADMIN: self.admin}[role]


PUBLIC = Rights(everybody=READ)
"""Everybody reads it; platform admins write it."""
OF_MEMBERS = Rights(viewer=READ, member=WRITE)
"""Viewers of the tenant read it, members write it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A field that names another object, by its name or by its uid."""

    path: str
    kind: str
    by_uid: bool = False


@dataclass(frozen=True, slots=True)
class Navigation:
    """An entry in the console's navigation."""

    title: str
    key: str = ""
    """The key that opens it after `g`."""


def at_any_time(*fields: str) -> dict[str, frozenset[Any] | None]:
    """Fields that may change in every phase."""
    return dict.fromkeys(fields)


def while_in(phases: Iterable[Any], *fields: str) -> dict[str, frozenset[Any] | None]:
    """Fields that may change in these phases only."""
    return dict.fromkeys(fields, frozenset(phases))


@dataclass(frozen=True, slots=True, eq=False)
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
    description: str = ""
    """One sentence."""
    phases: Mapping[Any, str] = field(default_factory=dict)
    """What each phase means."""
    transitions: Mapping[Any, frozenset[Any]] = field(default_factory=dict)
    """From each phase, the phases that may follow."""
    changes: Mapping[str, frozenset[Any] | None] | None = None
    """The only fields of the spec that may change after creation, with the phases in which; None means all, always."""
    admit: tuple[Callable[[Mapping[str, Any]], None], ...] = ()
    """What must hold of a new object beyond its model; each raises Invalid with the field and the remedy."""
    crd_rules: tuple[SchemaRule, ...] = ()
    """What the model's own code checks, for API servers of Kubernetes."""
    rights: Rights = Rights()
    work: bool = False
    """Whether it is work of a tenant: not in the platform's own namespace, and nothing new while it is suspended."""
    credential: bool = False
    """Whether it gives access: exported only on request, and the first to go with its tenant."""
    refers: tuple[Reference, ...] = ()
    """Which fields name other objects."""
    trees: tuple[str, ...] = ()
    """Fields that hold the digest of a tree: it and the files in it are kept."""
    blobs: tuple[str, ...] = ()
    """Fields that hold the digest of one file, which is kept."""
    owns: tuple[str, ...] = ()
    """Kinds of which it makes objects that go with it."""
    exported: bool = True
    """Whether it goes from store to store; what is news and not state does not."""
    identity: str = ""
    """Where an object that was moved keeps its first uid, if others outside know it by that."""
    only_in: str = ""
    """The one namespace that the platform's own are in; those elsewhere are not ours."""
    navigation: Navigation | None = None
    listing: str = ""
    """The words after `isthmus` that list it, where they are not the plural."""

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

    @property
    def custom(self) -> bool:
        """Whether it is ours, and not one that Kubernetes has by itself."""
        return self.group == GROUP

    def may_change(self, name: str, phase: str | None) -> bool:
        """Whether this field of the spec may change while the object is in this phase, or has none yet."""
        if self.changes is None:
            return True
        phases = self.changes.get(name, frozenset())
        return phases is None or (name in self.changes and phase is None) or phase in phases

    def when(self, name: str) -> str:
        """When this field may change, in words."""
        phases = (self.changes or {}).get(name)
        if phases is None:
            return "at any time"
        if phases == {phase for phase, following in self.transitions.items() if following}:
            return "before it has ended"
        return f"while it is {' or '.join(phase for phase in self.phases if phase in phases)}"

    def selectable(self, obj: Mapping[str, Any]) -> dict[str, str]:
        """The values that field selectors see."""
        return {path: text for path in self.fields if (text := _at(obj, _parts(path))) is not None}

    def status_has(self, name: str) -> bool:
        """Whether the status has a field of this name."""
        status = self.model.model_fields.get("status")
        model = status.annotation if status else None
        return isinstance(model, type) and issubclass(model, BaseModel) and name in model.model_fields


@cache
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _at(obj: Mapping[str, Any], parts: tuple[str, ...]) -> str | None:
    value: Any = obj
    for part in parts:
        if not isinstance(value, dict) or (value := value.get(part)) is None:
            return None
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
