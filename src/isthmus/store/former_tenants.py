"""Which tenants were removed when: the past of a namespace belongs to the tenant that had it.

A watch in a namespace that begins before its former tenant was removed is refused with `Expired`, so that a new tenant
of the same name sees nothing of the old one. Removals that were published here are remembered; what happened before is
asked of the log, which, as long as it knows anything of the former tenant's objects, knows of the later removal too.
"""

from __future__ import annotations

from isthmus.resources.kinds import TENANT

from .base import EventType, Query
from .entries import Entry

_MOST = 10_000


class FormerTenants:
    """The latest removal of each tenant, as far as it was published here."""

    def __init__(self) -> None:
        self._removed: dict[str, int] = {}
        self._forgotten = 0

    def note(self, entry: Entry) -> None:
        """An entry was published; only removals of tenants matter."""
        key = entry.record.key
        if key.kind != TENANT.name or entry.type is not EventType.DELETED:
            return
        self._removed.pop(key.name, None)
        self._removed[key.name] = entry.version
        if len(self._removed) > _MOST:
            self._forgotten = self._removed.pop(next(iter(self._removed)))

    def removed_after(self, tenant: str, version: int) -> bool:
        """Whether a tenant of this name was, or may have been, removed after a version."""
        return self._removed.get(tenant, self._forgotten) > version


def tenants_of(query: Query) -> tuple[str, ...]:
    """The tenants whose past a watch would show: that of its namespace, or those that it names."""
    if query.namespace is not None:
        return (query.namespace,)
    if query.kind is not TENANT:
        return ()
    named = (part for part in query.fields.requirements if part.key == "metadata.name" and part.op == "in")
    return tuple(sorted({name for part in named for name in part.values}))
