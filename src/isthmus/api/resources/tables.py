"""Forms of an answer: the object itself, a row of a Table, or its metadata alone. Pure.

kubectl asks for tables and prints the cells as they come, so ages are counted here, in kubectl's own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from starlette.exceptions import HTTPException

from isthmus._kit.clock import parse_timestamp
from isthmus.resources.kinds import Kind

META_V1 = "meta.k8s.io/v1"


class Form(Enum):
    """What the client wants to get."""

    OBJECT = "object"
    TABLE = "table"
    METADATA = "metadata"


@lru_cache(maxsize=1024)
def form_of(accept: bytes) -> Form:
    """The first form in the Accept header that is offered; raises a 406."""
    if not accept:
        return Form.OBJECT
    for choice in accept.decode("latin-1").split(","):
        media, *rest = (part.strip() for part in choice.split(";"))
        if media.lower() not in ("application/json", "*/*", "application/*"):
            continue
        given = dict(part.partition("=")[::2] for part in rest)
        wanted = given.get("as")
        if wanted is None:
            return Form.OBJECT
        if given.get("g") == "meta.k8s.io" and given.get("v") == "v1":
            if wanted == "Table":
                return Form.TABLE
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form.METADATA
    raise HTTPException(406, "only application/json is offered, also as Table and PartialObjectMetadata of v1")


def table(
    kind: Kind,
    objects: Iterable[Mapping[str, Any]],
    metadata: Mapping[str, Any],
    now: datetime,
    include: str = "Metadata",
    *,
    header: bool = True,
) -> dict[str, Any]:
    """A Table of the objects. In a watch only the first one carries the header."""
    return {
        "kind": "Table",
        "apiVersion": META_V1,
        "metadata": metadata,
        "columnDefinitions": _definitions(kind) if header else [],
        "rows": [_row(kind, obj, now, include) for obj in objects],
    }


def partial_metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """A PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_V1, "metadata": obj["metadata"]}


def human_duration(seconds: float) -> str:
    """An age as kubectl writes it: exact while it is young, coarse when it is old."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -2 else "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _pair(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _pair(first: int, one: str, second: int, other: str) -> str:
    return f"{first}{one}{second}{other}" if second else f"{first}{one}"


def _definitions(kind: Kind) -> list[dict[str, Any]]:
    name = {"name": "Name", "type": "string", "format": "name", "description": "Name of the object.", "priority": 0}
    return [
        name,
        *(
            {
                "name": column.name,
                "type": column.type,
                "format": "",
                "description": column.description or f"From {column.path}.",
                "priority": column.priority,
            }
            for column in kind.columns
        ),
    ]


def _row(kind: Kind, obj: Mapping[str, Any], now: datetime, include: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [obj["metadata"]["name"], *(_cell(obj, c.path, c.type, now) for c in kind.columns)]}
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        row["object"] = partial_metadata(obj)
    return row


def _cell(obj: Any, path: str, type_: str, now: datetime) -> Any:
    value = obj
    for part in path.lstrip(".").split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    if type_ == "date":
        if not isinstance(value, str):
            return "<unknown>" if path == ".metadata.creationTimestamp" else None
        return human_duration((now - parse_timestamp(value)).total_seconds())
    return value
