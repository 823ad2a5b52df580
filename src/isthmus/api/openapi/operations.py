"""Operations: everything that can be done with the kinds over HTTP, as data that each form of document renders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isthmus.api.resources.targets import KindView, all_views
from isthmus.resources.kinds import Kind


@dataclass(frozen=True, slots=True)
class ApiParameter:
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
class ApiOperation:
    """One method of one path of one kind."""

    path: str
    method: str
    action: str
    """What Kubernetes calls it: list, get, post, put, patch, delete, deletecollection."""
    view: KindView
    scope: str
    """`Namespaced`, or nothing; part of the operation's id."""
    subresource: str
    parameters: tuple[ApiParameter, ...]

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


NAME = ApiParameter("name", "name of the object", place="path")
NAMESPACE = ApiParameter("namespace", "the tenant whose objects are meant", place="path")
LISTING = (
    ApiParameter("labelSelector", "only objects with these labels: app=web,tier!=cache,env in (a,b)"),
    ApiParameter("fieldSelector", "only objects with these fields: status.phase=Running"),
    ApiParameter("limit", "at most so many; the answer says how to go on", "integer", minimum=0),
    ApiParameter("continue", "go on where an earlier answer stopped"),
    ApiParameter("resourceVersion", "watch from here", pattern="^[0-9]{0,18}$"),
    ApiParameter("resourceVersionMatch", "how resourceVersion is meant: Exact or NotOlderThan"),
    ApiParameter("watch", "send changes as they happen, one JSON object a line, instead of a list", "boolean"),
    ApiParameter("allowWatchBookmarks", "send the version reached now and then", "boolean"),
    ApiParameter("timeoutSeconds", "end a watch after so long", "integer", minimum=0),
)
_DRY_RUN = ApiParameter("dryRun", "check everything and keep nothing", enum=("All",))
WRITING = (
    _DRY_RUN,
    ApiParameter("fieldManager", "who writes"),
    ApiParameter("fieldValidation", "fields that are not known are always refused", enum=("Ignore", "Warn", "Strict")),
)
PATCHING = (*WRITING, ApiParameter("force", "accepted for apply; the last writer always wins"))
DELETING = (
    _DRY_RUN,
    ApiParameter("gracePeriodSeconds", "accepted, and not needed", "integer", minimum=0),
    ApiParameter(
        "propagationPolicy", "what becomes of the objects it owns", enum=("Background", "Foreground", "Orphan")
    ),
)


def operations(group: str | None = None, version: str = "v1") -> Iterator[ApiOperation]:
    """Everything of one group and version, or of all."""
    for (found_group, found_version), views in all_views().items():
        if group is None or (found_group, found_version) == (group, version):
            for view in views.values():
                yield from _of_view(view)


def root_of(kind: Kind) -> str:
    """The path that everything of the kind's group and version is below."""
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _of_view(view: KindView) -> Iterator[ApiOperation]:
    kind, root = view.kind, root_of(view.kind)
    scope, base = "", f"{root}/{kind.plural}"
    path: tuple[ApiParameter, ...] = ()
    if kind.namespaced:
        yield ApiOperation(base, "get", "list", view, "", "", LISTING)
        scope, base, path = "Namespaced", f"{root}/namespaces/{{namespace}}/{kind.plural}", (NAMESPACE,)

    def one(
        method: str, action: str, parameters: tuple[ApiParameter, ...], name: bool = True, sub: str = ""
    ) -> ApiOperation:
        place = base + ("/{name}" if name else "") + (f"/{sub}" if sub else "")
        return ApiOperation(place, method, action, view, scope, sub, (*path, *((NAME,) if name else ()), *parameters))

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
