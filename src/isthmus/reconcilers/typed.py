"""Objects that are looked at all the time and seldom change (sites, tenants, device classes): read once per version."""

from __future__ import annotations

from typing import TypeVar, cast

from isthmus.resources.frame.meta import Resource
from isthmus.store.base import Key, Record

R = TypeVar("R", bound=Resource)


class Typed:
    """The latest version of each object as its model. Shared by all who ask: nobody may change it."""

    def __init__(self) -> None:
        self._read: dict[Key, tuple[Record, Resource]] = {}

    def of(self, model: type[R], record: Record) -> R:
        """The object of a record."""
        if (known := self._read.get(record.key)) is None or known[0] is not record:
            known = self._read[record.key] = (record, model.model_validate(record.obj))
        return cast(R, known[1])
