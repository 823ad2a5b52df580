"""A cluster in memory: objects with versions and uids, and the faults to make."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

from isthmus.engines.kubernetes.heartbeats import LEASES
from isthmus.engines.kubernetes.lease_writes import LeaseAnswer
from isthmus.errors import AlreadyExists, Conflict, NotFound, SiteUnavailable

NODES = "/api/v1/nodes"
Object = dict[str, Any]


class FakeCluster:
    """What the API server keeps, and how often it was asked to write."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.unavailable = ""
        self.throttled = 0
        """So many of the next heartbeats are put off."""
        self.writes: list[str] = []
        self.closed = 0
        self._numbers = itertools.count(1)

    def nodes(self) -> dict[str, Object]:
        return self._below(NODES)

    def leases(self) -> dict[str, Object]:
        return self._below(LEASES)

    def _below(self, folder: str) -> dict[str, Object]:
        return {path.rpartition("/")[2]: obj for path, obj in self.objects.items() if path.startswith(f"{folder}/")}

    async def get(self, path: str, **params: str | int) -> Any:
        self._reach()
        if path not in self.objects:
            raise NotFound(path)
        return copy.deepcopy(self.objects[path])

    async def create(self, path: str, obj: Any) -> Any:
        self._reach()
        place = f"{path}/{obj['metadata']['name']}"
        if place in self.objects:
            raise AlreadyExists(f"{place} already exists")
        return self._keep(place, obj, f"uid-{next(self._numbers)}")

    async def patch(self, path: str, change: Any) -> Any:
        self._reach()
        place = path.removesuffix("/status")
        if place not in self.objects:
            raise NotFound(path)
        known = copy.deepcopy(self.objects[place])
        version = change.get("metadata", {}).get("resourceVersion")
        if version is not None and version != known["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        merge(known, change)
        return self._keep(place, known, known["metadata"]["uid"])

    async def delete(self, path: str, **options: Any) -> None:
        self._reach()
        known = self.objects.get(path)
        if known is None:
            return
        if options.get("preconditions", {}).get("uid") != known["metadata"]["uid"]:
            raise Conflict("the uid is another")
        self.writes.append(f"delete {path}")
        del self.objects[path]

    async def list_all(self, path: str, selector: str) -> tuple[list[Any], str]:
        self._reach()
        wanted = dict(part.split("=") for part in selector.split(","))
        found = [
            obj for obj in self._below(path).values() if wanted.items() <= (obj["metadata"].get("labels") or {}).items()
        ]
        return copy.deepcopy(found), "1"

    async def put_all(self, objects: Sequence[tuple[str, Any]]) -> list[LeaseAnswer]:
        self._reach()
        return [self._put(path, obj) for path, obj in objects]

    async def close(self) -> None:
        self.closed += 1

    def _put(self, path: str, obj: Object) -> LeaseAnswer:
        known = self.objects.get(path)
        if self.throttled > 0:
            self.throttled -= 1
            return LeaseAnswer(429, None)
        if known is None:
            return LeaseAnswer(404, {"message": "not found"})
        if known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            return LeaseAnswer(409, {"message": "the object has been modified"})
        return LeaseAnswer(200, self._keep(path, obj, known["metadata"]["uid"]))

    def _keep(self, place: str, obj: Object, uid: str) -> Object:
        kept = copy.deepcopy(obj)
        kept["metadata"] |= {"uid": uid, "resourceVersion": str(next(self._numbers))}
        self.objects[place] = kept
        self.writes.append(place)
        return copy.deepcopy(kept)

    def _reach(self) -> None:
        if self.unavailable:
            raise SiteUnavailable(self.unavailable)


def merge(into: Object, change: Object) -> None:
    """RFC 7386."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value
