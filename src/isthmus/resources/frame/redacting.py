"""What of an object is for administrators only, and the object without it. Pure.

A field is marked in its model, where it is declared and documented: `Annotated[str, ADMIN_ONLY]`. Of a kind that has
such fields, others see no annotations either, because clients keep whole copies of objects there, and no messages of
conditions, which quote from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from isthmus.resources.kinds import KINDS, Kind

from .fields import ADMIN_ONLY

Path = tuple[str, ...]
_TEXTS: tuple[Path, ...] = (("metadata", "annotations"), ("status", "conditions", "*", "message"))
"""Hidden too, where anything is: whole copies of the object, and sentences that quote from it."""


@cache
def hidden_fields(kind: Kind) -> tuple[Path, ...]:
    """The paths that only administrators see; `*` stands for every entry of a list. None for most kinds."""
    return tuple(_marked(kind.model, ()))


def _marked(model: type[BaseModel], above: Path) -> list[Path]:
    found: list[Path] = []
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        if ADMIN_ONLY in field.metadata:
            found.append(path)
        else:
            for inner, many in _models_in(field.annotation):
                found += _marked(inner, (*path, "*") if many else path)
    return found


def _models_in(annotation: Any, many: bool = False) -> list[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, many)]
    inside = many or getattr(annotation, "__origin__", None) is list
    return [found for argument in get_args(annotation) for found in _models_in(argument, inside)]


def redacted(kind: Kind, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object as everybody may see it. Parts that are not changed are shared with the original."""
    result = dict(obj)
    for path in (*hidden_fields(kind), *_TEXTS):
        result = _without(result, path)
    return result


def _without(value: Any, path: Path) -> Any:
    first, *rest = path
    if first == "*" and isinstance(value, list):
        return [_without(item, tuple(rest)) for item in value]
    if not isinstance(value, dict) or first not in value:
        return value
    if not rest:
        return {key: item for key, item in value.items() if key != first}
    return {**value, first: _without(value[first], tuple(rest))}


REDACTED = frozenset(kind.name for kind in KINDS.values() if hidden_fields(kind))
"""The kinds that are not shown whole to everybody."""
