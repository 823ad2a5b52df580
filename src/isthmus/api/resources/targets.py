"""Targets: which resource a path means. Plain splitting, because every read passes here.

`/apis/{group}/{version}/[namespaces/{namespace}/]{plural}[/{name}[/{subresource}]]`, and the same below
`/api/v1` for the core group. What is not of this form, or names a subresource that others serve (logs, outputs),
is no target and goes to the router.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from isthmus.resources.kinds import KINDS, TENANT, Kind, derived
from isthmus.store.base import Key, Record

from .namespaces import NAMESPACE, as_namespace


@dataclass(frozen=True, slots=True)
class KindView:
    """A kind as the API shows it. Namespaces are tenants seen differently, and can only be read."""

    kind: Kind
    stored: Kind
    convert: Callable[[Record], Record] | None = None

    @property
    def read_only(self) -> bool:
        """Whether there is nothing to write."""
        return self.convert is not None


@dataclass(frozen=True, slots=True)
class Target:
    """A collection (no name), an object, or a subresource. No namespace: all of them, or a kind without one."""

    view: KindView
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        """Where the object lives."""
        return Key(self.view.stored.name, self.namespace, self.name)

    def what(self) -> dict[str, str]:
        """What an error is about, for the details of its Status."""
        kind = self.view.kind
        found = {"name": self.name, "group": kind.group, "kind": kind.plural}
        return {key: value for key, value in found.items() if value}


@derived
def all_views() -> Mapping[tuple[str, str], Mapping[str, KindView]]:
    """Everything served, by group and version, then by plural."""
    views: dict[tuple[str, str], dict[str, KindView]] = {}
    for kind in KINDS.values():
        if kind.served:
            views.setdefault((kind.group, kind.version), {})[kind.plural] = KindView(kind, kind)
    views.setdefault(("", "v1"), {})[NAMESPACE.plural] = KindView(NAMESPACE, TENANT, as_namespace)
    return views


_SUBRESOURCES = ("", "status", "scale")


def find_target(path: str) -> Target | None:
    """The target of a path, or None."""
    parts = path.split("/")
    if len(parts) > 4 and parts[1] == "apis":
        views = all_views().get((parts[2], parts[3]))
        rest = parts[4:]
    elif len(parts) > 3 and parts[1] == "api":
        views = all_views().get(("", parts[2]))
        rest = parts[3:]
    else:
        return None
    if views is None:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] in views:
        namespace, rest = rest[1], rest[2:]
        if not namespace or not views[rest[0]].kind.namespaced:
            return None
    view = views.get(rest[0])
    if view is None or len(rest) > 3 or "" in rest:
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource not in _SUBRESOURCES or (name and view.kind.namespaced and not namespace):
        return None
    return Target(view, namespace, name, subresource)
