"""The store contract: what every place for objects offers, and what it promises.

- An object is JSON. The store owns `uid`, `resourceVersion`, `generation`, `creationTimestamp` and
  `deletionTimestamp` of its metadata and looks at nothing else but labels, finalizers, owner references and the
  fields its kind lets be selected.
- **Versions** are whole numbers that grow with every change of any object, in the order of commits. A change is
  acknowledged only when it would survive `kill -9` and power loss.
- **update** compares the version the object was read with, when it carries one; a stale one is a `Conflict`.
  An update that changes nothing makes no new version.
- **delete** with finalizers left only marks the object; it goes when an update takes the last one away. What it
  owns goes with it (background), before it (foreground), or stays (orphan).
- **list** answers at one version. A continued list goes on from where it stopped in the present state and
  reports the version of its first page, so that a watch from there misses nothing.
- **watch** delivers every later change once and in order, or raises `Expired`. An object that stops matching the
  query is reported as deleted, one that begins to match as added.

`testing/stores.py` is this contract as a suite; every store passes it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import orjson

from isthmus.errors import NotFound
from isthmus.resources.frame.selectors import EVERYTHING, Selector
from isthmus.resources.kinds import Kind
from isthmus.resources.tenants import Tenant

Object = dict[str, Any]


class Key(NamedTuple):
    """Where an object lives. `kind` is the name of the kind; `namespace` is empty for kinds without one."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


def missing(key: Key, more: str = "") -> NotFound:
    """The error that says which object is not there."""
    words = re.sub(r"(?<!^)([A-Z])", r" \1", key.kind).lower()
    where = f" in tenant {key.namespace}" if key.namespace else ""
    return NotFound(
        f"there is no {words} {key.name}{where}{more}", kind=key.kind, namespace=key.namespace, name=key.name
    )


@dataclass(frozen=True)
class Record:
    """One version of one object: its bytes as they go over the wire, decoded only when somebody looks."""

    key: Key
    uid: str
    version: int
    data: bytes

    @cached_property
    def obj(self) -> Object:
        """The decoded object. Shared: copy it before changing it."""
        decoded: Object = orjson.loads(self.data)
        return decoded

    def shrink(self) -> None:
        """Let go of the decoded form; it is made again when somebody looks."""
        self.__dict__.pop("obj", None)


class EventType(StrEnum):
    """What happened, in the words of a Kubernetes watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True)
class Change:
    """One thing that a watch delivers. A bookmark has no record, only the version reached."""

    type: EventType
    version: int
    record: Record | None = None
    kind: Kind | None = None
    """Of a bookmark: the kind that is watched."""

    @cached_property
    def line(self) -> bytes:
        """As it goes over the wire: one line of JSON, made once however many watchers there are."""
        data = self.record.data if self.record is not None else orjson.dumps(self._bookmark())
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), data)

    def _bookmark(self) -> Object:
        names = {"kind": self.kind.name, "apiVersion": self.kind.api_version} if self.kind else {}
        return {**names, "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None}}


class Changes(AsyncIterable[Change], Protocol):
    """What a watch hands out: changes one by one, or all that wait."""

    def __aiter__(self) -> AsyncIterator[Change]: ...

    async def __anext__(self) -> Change: ...

    def ready(self) -> list[Change]:
        """Take every change that can be had without waiting, so that a sender may join them into one write."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """Which objects: of a kind, in a namespace (None: in all), matching both selectors."""

    kind: Kind
    namespace: str | None = None
    labels: Selector = EVERYTHING
    fields: Selector = EVERYTHING


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects in the order of their keys, the version they were listed at, and how to go on."""

    records: list[Record]
    version: int
    continue_: str | None = None
    remaining: int | None = field(default=None)
    """How many more there are, where that is cheap to know."""


class Part(StrEnum):
    """Which part of an object an update replaces."""

    SPEC = "spec"
    """Everything but the status: what people write."""
    STATUS = "status"
    """Only the status: what is observed."""
    WHOLE = "whole"
    """Both: what reconcilers write when a finalizer and a status must change together."""


class Propagation(StrEnum):
    """What happens to the objects an object owns when it is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


class Spaces(Protocol):
    """The namespaces of tenants, where a store wants them made."""

    async def keep(self, tenant: Tenant) -> None:
        """See to it that the tenant has its namespace with its roles and quotas; raises Invalid when it cannot have."""
        ...

    async def remove(self, tenant: str) -> None:
        """Take away what `keep` made."""
        ...


class Store(Protocol):
    """Where objects live."""

    @property
    def whole_at_once(self) -> bool:
        """Whether a new object has the status it was made with from its first moment, before anybody sees it."""
        ...

    async def open(self) -> None:
        """Connect, make or migrate the tables, start the writer."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go."""
        ...

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        """Keep a new object. `metadata.name` is set (a `generateName` is resolved by the caller)."""
        ...

    async def get(self, key: Key) -> Record:
        """The present version; raises NotFound."""
        ...

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        """Replace a part of an object; raises NotFound, Conflict. May remove it when its last finalizer goes."""
        ...

    async def delete(
        self,
        key: Key,
        *,
        uid: str | None = None,
        version: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Record:
        """Delete, if it still is the object meant; the last version, or the one marked for deletion."""
        ...

    async def list(
        self, query: Query, *, limit: int | None = None, continue_: str | None = None, most_bytes: int | None = None
    ) -> Page:
        """The objects that match. A page ends after `limit` objects, or after the object with which it has more than
        `most_bytes`; then `continue_` leads on."""
        ...

    def watch(
        self, query: Query, *, since: int | None = None, bookmarks: float | None = None
    ) -> AbstractAsyncContextManager[Changes]:
        """Changes after version `since` (None: the present objects as added, then changes).

        With `bookmarks`, a bookmark whenever that many seconds passed, so that a quiet watcher's version stays
        young. Raises Expired when `since` is no longer kept, or when the reader is too slow.
        """
        ...

    async def version(self) -> int:
        """The version of the latest change."""
        ...


@runtime_checkable
class BoundedStore(Protocol):
    """A store on a disk of this machine, which may be full."""

    def problem(self) -> str:
        """Why new objects are refused at present; empty if they are not."""
        ...
