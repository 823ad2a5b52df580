"""The store in a Kubernetes API server.

Reads and writes go straight to the server; versions are its resource versions (etcd's revision: one sequence for all
objects). Watches go through one reflector per kind. What differs from the embedded stores, and how it is met:

- **No transaction over two writes.** `Part.WHOLE` is two requests, status and the rest. What holds an object (a new
  finalizer) is written first, what lets it go (a finalizer taken away) last, so that a crash in between leaves an
  object that is still held. The second carries the version that the first made.
- **A new object has the initial status.** Another one is written right after it.
- **Owned objects** are collected by the cluster's garbage collector, a moment later.
- **An update that changes nothing** is not sent: servers of 1.20 would make a version of it.
- **An update without a version** reads the present one and tries again when it lost the race.
- **The answer to a deletion** has no version. The watch reports it, and is waited for briefly.

When an answer is lost, nobody guesses: the error says that it is not known whether the change was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from isthmus.errors import Conflict, Expired, Invalid, NotFound, StoreUnavailable
from isthmus.kubernetes.answers import STORE
from isthmus.kubernetes.client import KubernetesClient
from isthmus.kubernetes.kubeconfigs import ClusterAccess
from isthmus.resources.kinds import KINDS, TENANT, Kind
from isthmus.resources.schemas.crds import custom_kinds
from isthmus.store.base import Key, Object, Page, Part, Propagation, Query, Record, missing
from isthmus.store.changes import key_of
from isthmus.store.entries import Entry
from isthmus.store.former_tenants import FormerTenants
from isthmus.store.hub import Hub, Watch
from isthmus.store.settings import StoreSettings

from .listing import list_all, list_page
from .reflecting import Reflector
from .shaping import incoming, is_ours, new_object, outgoing, path_of
from .spaces import ClusterSpaces

log = logging.getLogger(__name__)

_TRIES = 20


class KubernetesStore:
    """Objects in an API server."""

    whole_at_once = False

    def __init__(self, access: ClusterAccess, settings: StoreSettings | None = None) -> None:
        self._settings = settings or StoreSettings()
        self.api = KubernetesClient(access, self._settings.answer_wait, meanings=STORE, at_once=self._settings.requests)
        self.spaces = ClusterSpaces(self.api)
        self._reflectors: dict[str, Reflector] = {}
        self._former = FormerTenants()
        self._open = False

    async def open(self) -> None:
        """Look whether the cluster answers and has our kinds, and begin to follow them."""
        self._open = True
        try:
            await self.version()
        except BaseException:
            await self.close()
            raise
        for kind in custom_kinds() if self._settings.following else ():
            self._follow(kind)
        await asyncio.gather(*(reflector.synced() for reflector in self._reflectors.values()))

    async def close(self) -> None:
        """Let go. What was sent is done, or known not to be."""
        self._open = False
        await asyncio.gather(*(reflector.close() for reflector in self._reflectors.values()))
        await self.api.close()

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        """Keep a new object."""
        key = key_of(kind, obj)
        self._require_open()
        if kind is TENANT:
            await self.spaces.make(key.name)
        sent = new_object(kind, obj)
        record = self._record(kind, await self.api.send("POST", path_of(kind, key.namespace), str(key), sent))
        if kind.has_status and not _is_initial(sent.get("status"), record.obj.get("status")):
            return await self._put(kind, {**record.obj, "status": obj["status"]}, "status")
        return record

    async def get(self, key: Key) -> Record:
        """The present version."""
        self._require_open()
        kind = KINDS[key.kind]
        with _about(key):
            record = self._record(kind, await self.api.get(path_of(kind, key.namespace, key.name), str(key)))
        if not is_ours(record):
            raise missing(key)
        return record

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        """Replace a part of an object."""
        key = key_of(kind, obj)
        self._require_open()
        version = str(obj["metadata"].get("resourceVersion") or "")
        if version not in ("", "0"):
            if not version.isdecimal():
                raise Invalid(f"{key}: {version!r} is not a version; send the one that was read")
            return await self._replace(kind, key, obj, part)
        for _ in range(_TRIES):
            now = await self.get(key)
            if (uid := obj["metadata"].get("uid")) and uid != now.uid:
                raise Conflict(f"{key} is another object than the one meant (its uid is {now.uid}, not {uid})")
            meta = {**obj["metadata"], "resourceVersion": str(now.version)}
            try:
                return await self._replace(kind, key, {**obj, "metadata": meta}, part)
            except Conflict:
                continue
        raise Conflict(f"{key} changes faster than it can be updated; try again")

    async def delete(
        self,
        key: Key,
        *,
        uid: str | None = None,
        version: int | None = None,
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Record:
        """Delete, if it still is the object meant."""
        kind, last = KINDS[key.kind], await self.get(key)
        if uid and uid != last.uid:
            raise Conflict(f"{key} is another object than the one meant (its uid is {last.uid}, not {uid})")
        conditions: Object = {"uid": last.uid}
        if version:
            conditions["resourceVersion"] = str(version)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.value,
            "preconditions": conditions,
        }
        async with _Removal(self, kind, last) as removal:
            path = path_of(kind, key.namespace, key.name)
            with _about(key):
                answer = await self.api.send("DELETE", path, str(key), options)
            if answer.get("kind") == kind.name and answer["metadata"].get("finalizers"):
                return self._record(kind, answer)
            return await removal.reported()

    async def list(
        self, query: Query, *, limit: int | None = None, continue_: str | None = None, most_bytes: int | None = None
    ) -> Page:
        """The objects that match. The cluster bounds its pages itself, so `most_bytes` does not count here."""
        self._require_open()
        if limit is None and continue_ is None:
            return await list_all(self.api, query, self._settings.page)
        return await list_page(self.api, query, limit or self._settings.page, continue_)

    def watch(self, query: Query, *, since: int | None = None, bookmarks: float | None = None) -> Watch:
        """Changes after a version."""
        self._require_open()
        return self._follow(query.kind).hub.watch(query, since, bookmarks)

    async def version(self) -> int:
        """The version of the latest change in the cluster."""
        self._require_open()
        answer = await self.api.get(path_of(TENANT, None), "the version", {"limit": 1})
        return int(answer["metadata"]["resourceVersion"])

    async def present(self, query: Query) -> Page:
        """For the hub: all objects that match."""
        if (reflector := self._reflectors.get(query.kind.name)) is not None:
            await reflector.synced()
        return await self.list(query)

    async def past(self, query: Query, after: int, until: int, limit: int) -> Sequence[Entry]:
        """For the hub: we hold no log of our own."""
        raise Expired(f"changes after version {after} are no longer kept here; list again")

    async def tenant_removed(self, name: str, after: int) -> bool:
        """For the hub: all that is known is known to `FormerTenants`, which the hubs of all kinds share."""
        return False

    def _follow(self, kind: Kind) -> Reflector:
        reflector = self._reflectors.get(kind.name)
        if reflector is None:
            hub = Hub(self, self._settings, self._former)
            reflector = Reflector(self.api, kind, hub, self._settings, self.list)
            self._reflectors[kind.name] = reflector
            reflector.start()
        return reflector

    async def _replace(self, kind: Kind, key: Key, obj: Mapping[str, Any], part: Part) -> Record:
        if kind.name not in self._reflectors:  # leases, renewed each second: to read them first would cost more
            return await self._put(kind, obj)
        before = await self._base(key, obj)
        if not kind.has_status:
            return before if _same_but_status(before, obj) else await self._put_rest(kind, key, obj)
        if part is Part.STATUS:
            return before if _same(before, obj, "status") else await self._put(kind, obj, "status")
        if part is Part.SPEC:
            return before if _same_but_status(before, obj) else await self._put_rest(kind, key, obj)
        steps = [Part.SPEC, Part.STATUS] if not _lets_go(before, obj) else [Part.STATUS, Part.SPEC]
        record = before
        for step in steps:
            sent = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(record.version)}}
            if step is Part.STATUS and not _same(before, obj, "status"):
                record = await self._put(kind, sent, "status")
            elif step is Part.SPEC and not _same_but_status(before, obj):
                record = await self._put_rest(kind, key, {**sent, "status": obj.get("status")})
        return record

    async def _base(self, key: Key, obj: Mapping[str, Any]) -> Record:
        """The version that an update starts from, read from the server unless the watch has reported it."""
        reflector = self._reflectors.get(key.kind)
        known = reflector.known(key) if reflector is not None else None
        record = known or await self.get(key)
        if str(record.version) != str(obj["metadata"]["resourceVersion"]):
            record = await self.get(key)
        if str(record.version) != str(obj["metadata"]["resourceVersion"]):
            raise Conflict(f"{key} was changed since it was read (it is at {record.version}); read it again")
        return record

    async def _put_rest(self, kind: Kind, key: Key, obj: Mapping[str, Any]) -> Record:
        meta = obj["metadata"]
        if meta.get("finalizers") or not meta.get("deletionTimestamp"):
            return await self._put(kind, obj)
        # The last finalizer goes from an object that is being deleted: this removes it.
        last = await self._base(key, obj)
        async with _Removal(self, kind, last) as removal:
            record = await self._put(kind, obj)
            if record.obj["metadata"].get("deletionTimestamp") and not record.obj["metadata"].get("finalizers"):
                return await removal.reported(record)
            return record

    async def _put(self, kind: Kind, obj: Mapping[str, Any], sub: str = "") -> Record:
        key = key_of(kind, obj)
        path = path_of(kind, key.namespace, key.name, sub)
        with _about(key):
            return self._record(kind, await self.api.send("PUT", path, str(key), outgoing(kind, obj)))

    def _record(self, kind: Kind, answer: Object) -> Record:
        record = incoming(kind, answer)
        if (reflector := self._reflectors.get(kind.name)) is not None:
            reflector.note(record)
        return record

    def _require_open(self) -> None:
        if not self._open:
            self._closed()

    def _closed(self) -> NoReturn:
        raise StoreUnavailable("the store is closed; nothing was changed")


class _Removal:
    """Waits for the watch to report a removal; entered before the removal is asked for, so that it is not missed."""

    def __init__(self, store: KubernetesStore, kind: Kind, last: Record) -> None:
        self._reflector = store._reflectors.get(kind.name)
        self._wait = store._settings.removal_wait
        self._last = last

    async def __aenter__(self) -> _Removal:
        if self._reflector is not None:
            self._future = self._reflector.removal(self._last.uid)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reflector is not None:
            self._reflector.stop_waiting(self._last.uid)

    async def reported(self, last: Record | None = None) -> Record:
        """The last state under the version of the removal; under its own last version if the watch is late."""
        if self._reflector is not None:
            try:
                async with asyncio.timeout(self._wait):
                    return await asyncio.shield(self._future)
            except TimeoutError:
                log.info("store.removal_not_told key=%s", self._last.key)
        return last or self._last


@contextmanager
def _about(key: Key) -> Iterator[None]:
    """Say which of our objects is not there, in place of what the cluster calls it."""
    try:
        yield
    except NotFound:
        raise missing(key) from None


def _is_initial(wanted: Any, made: Any) -> bool:
    """Whether the status that the server gave a new object is the one wanted."""
    return not wanted or {**(made or {}), **wanted} == (made or {})


def _lets_go(before: Record, obj: Mapping[str, Any]) -> bool:
    """Whether an update takes a finalizer away."""
    return bool(set(before.obj["metadata"].get("finalizers") or ()) - set(obj["metadata"].get("finalizers") or ()))


def _same(before: Record, obj: Mapping[str, Any], *parts: str) -> bool:
    """Whether these parts of an object, as it would be sent, are as they were."""
    kind = KINDS[before.key.kind]
    was, now = outgoing(kind, before.obj), outgoing(kind, obj)
    return all((was.get(part) or None) == (now.get(part) or None) for part in parts)


def _same_but_status(before: Record, obj: Mapping[str, Any]) -> bool:
    """Whether all but the status is as it was."""
    fields = ("labels", "annotations", "finalizers", "ownerReferences")
    was, now = before.obj["metadata"], obj["metadata"]
    content = set(before.obj.keys() | obj.keys()) - {"metadata", "status", "apiVersion", "kind"}
    return all((was.get(f) or None) == (now.get(f) or None) for f in fields) and _same(before, obj, *content)
