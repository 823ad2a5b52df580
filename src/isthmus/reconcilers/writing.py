"""Writes of reconcilers: only while we lead, with the version that was read, seen by ourselves at once."""

from __future__ import annotations

from typing import Any

from isthmus.resources.frame.meta import Model
from isthmus.resources.kinds import Kind
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Part, Record, Store


class Writer:
    """Writes objects of one kind."""

    def __init__(self, store: Store, leadership: Leadership, informer: Informer) -> None:
        self._store, self._leadership, self._informer = store, leadership, informer
        self.kind: Kind = informer.kind

    async def status(self, record: Record, status: Model, **metadata: Any) -> Record:
        """Replace the status, and the named parts of the metadata (such as finalizers) with it.

        Raises Conflict when somebody else changed the object since `record` was read.
        """
        obj = {**record.obj, "status": status.to_json()}
        if metadata:
            obj["metadata"] = {**record.obj["metadata"], **metadata}
        return await self._write(record, obj, Part.WHOLE if metadata else Part.STATUS)

    async def metadata(self, record: Record, **metadata: Any) -> Record:
        """Replace parts of the metadata."""
        return await self._write(record, {**record.obj, "metadata": {**record.obj["metadata"], **metadata}}, Part.SPEC)

    async def spec(self, record: Record, **fields: Any) -> Record:
        """Replace fields of the spec."""
        return await self._write(record, {**record.obj, "spec": {**record.obj["spec"], **fields}}, Part.SPEC)

    async def change(self, record: Record, metadata: dict[str, Any], spec: dict[str, Any]) -> Record:
        """Replace parts of the metadata and fields of the spec together."""
        obj = {**record.obj, "metadata": {**record.obj["metadata"], **metadata}, "spec": {**record.obj["spec"], **spec}}
        return await self._write(record, obj, Part.SPEC)

    async def whole(self, record: Record, status: Model, **fields: Any) -> Record:
        """Replace the status, and fields of the spec with it: both or neither, where the store keeps them together."""
        obj = {**record.obj, "status": status.to_json(), "spec": {**record.obj["spec"], **fields}}
        return await self._write(record, obj, Part.WHOLE)

    async def create(self, obj: dict[str, Any]) -> Record:
        """Keep a new object."""
        self._leadership.check()
        record = await self._store.create(self.kind, obj)
        self._informer.note(record)
        return record

    async def _write(self, record: Record, obj: dict[str, Any], part: Part) -> Record:
        self._leadership.check()
        self._informer.doubt(record.key)
        written = await self._store.update(self.kind, obj, part)
        meta = written.obj["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self._informer.note_removed(written)
        else:
            self._informer.note(written)
        return written
