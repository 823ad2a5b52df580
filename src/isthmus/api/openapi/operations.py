"""Operations: everything that can be done with the kinds over HTTP, as data that each form of document renders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isthmus.api.resources.targets import View, all_views
from isthmus.resources.kinds import Kind


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a path or query."""

    name: str
    description: str
    type: str = "string"
    place: str = "query"
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path of one kind."""

    path: str
    method: str
    action: str
    """What Kubernetes calls it: list, get, post, put, patch, delete, deletecollection."""
    view: View
    scope: str
    """`Namespaced`, or nothing; part of the operation's id."""
    subresource: str
    parameters: tuple[Parameter, ...]

    @property
    def kind(self) -> Kind:
        """The kind as it is shown."""
        return self.view.kind

    @property
    def id(self) -> str:
        """Unique, in the manner of Kubernetes: `listIsthmusDevV1NamespacedJob`."""
        group = "".join(word.capitalize() for word in (self.kind.group or "core").split("."))
        verb = {"post": "create", "get": "read", "put": "replace", "deletecollection": "deleteCollection"}
        place = f"{self.kind.version.capitalize()}{self.scope}{self.kind.name}{self.subresource.capitalize()}"
        everywhere = "ForAllNamespaces" if self.kind.namespaced and not self.scope else ""
        return f"{verb.get(self.action, self.action)}{group}{place}{everywhere}"


NAME = Parameter("name", "name of the object", place="path")
NAMESPACE = Parameter("namespace", "the tenant whose objects are meant", place="path")
LISTING = (
    Parameter("labelSelector", "only objects with these labels: app=web,tier!=cache,env in (a,b)"),
    Parameter("fieldSelector", "only objects with these fields: status.phase=Running"),
    Parameter("limit", "at most so many; the answer says how to go on", "integer", minimum=0),
    Parameter("continue", "go on where an earlier answer stopped"),
    Parameter("resourceVersion", "watch from here", pattern="^[0-9]{0,18}$"),
    Parameter("resourceVersionMatch", "how resourceVersion is meant: Exact or NotOlderThan"),
    Parameter("watch", "send changes as they happen, one JSON object a line, instead of a list", "boolean"),
    Parameter("allowWatchBookmarks", "send the version reached now and then", "boolean"),
    Parameter("timeoutSeconds", "end a watch after so long", "integer", minimum=0),
)
_DRY_RUN = Parameter("dryRun", "check everything and keep nothing", enum=("All",))
WRITING = (
    _DRY_RUN,
    Parameter("fieldManager", "who writes"),
    Parameter("fieldValidation", "fields that are not known are always refused", enum=("Ignore", "Warn", "Strict")),
)
PATCHING = (*WRITING, Parameter("force", "accepted for apply; the last writer always wins"))
DELETING = (
    _DRY_RUN,
    Parameter("gracePeriodSeconds", "accepted, and not needed", "integer", minimum=0),
    Parameter("propagationPolicy", "what becomes of the objects it owns", enum=("Background", "Foreground", "Orphan")),
)


def operations(group: str | None = None, version: str = "v1") -> Iterator[Operation]:
    """Everything of one group and version, or of all."""
    for (found_group, found_version), views in all_views().items():
        if group is None or (found_group, found_version) == (group, version):
            for view in views.values():
                yield from _of_view(view)


def root_of(kind: Kind) -> str:
    """The path that everything of the kind's group and version is below."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _of_view(view: View) -> Iterator[Operation]:
    kind, root = view.kind, root_of(view.kind)
    scope, base = "", f"{root}/{kind.plural}"
    path: tuple[Parameter, ...] = ()
    if kind.namespaced:
        yield Operation(base, "get", "list", view, "", "", LISTING)
        scope, base, path = "Namespaced", f"{root}/namespaces/{{namespace}}/{kind.plural}", (NAMESPACE,)

    def one(method: str, action: str, parameters: tuple[Parameter, ...], name: bool = True, sub: str = "") -> Operation:
        place = base + ("/{name}" if name else "") + (f"/{sub}" if sub else "")
        return Operation(place, method, action, view, scope, sub, (*path, *((NAME,) if name else ()), *parameters))

    yield one("get", "list", LISTING, name=False)
    yield one("get", "get", ())
    if kind.has_status:
        yield one("get", "get", (), sub="status")
    if not view.read_only:
        yield one("post", "post", WRITING, name=False)
        yield one("delete", "deletecollection", (*LISTING[:4], *DELETING), name=False)
        yield one("put", "put", WRITING)
        yield one("patch", "patch", PATCHING)
        yield one("delete", "delete", DELETING)
        if kind.has_status:
            yield one("put", "put", WRITING, sub="status")
            yield one("patch", "patch", PATCHING, sub="status")
