"""A store with a crash point before and after every write, so that tests can kill the process at each of them.

A point is called after what is written: `update.Job.Running:after`, `create.Event:before`. So the points between the
effects of reconcilers follow from what they write, and nobody keeps a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from isthmus._kit.crashpoints import reach, watched
from isthmus.resources.kinds import Kind

from .base import Key, Part, Record, Store


def with_points(store: Store) -> Store:
    """The store; with points where a test looks at them."""
    return cast(Store, _PointedStore(store)) if watched() else store


class _PointedStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Record:
        point = f"create.{kind.name}"
        reach(f"{point}:before")
        record = await self._store.create(kind, obj)
        reach(f"{point}:after")
        return record

    async def update(self, kind: Kind, obj: Mapping[str, Any], part: Part = Part.SPEC) -> Record:
        phase = (obj.get("status") or {}).get("phase")
        point = f"update.{kind.name}.{phase}" if phase else f"update.{kind.name}"
        reach(f"{point}:before")
        record = await self._store.update(kind, obj, part)
        reach(f"{point}:after")
        return record

    async def delete(self, key: Key, **options: Any) -> Record:
        reach(f"delete.{key.kind}:before")
        record = await self._store.delete(key, **options)
        reach(f"delete.{key.kind}:after")
        return record
