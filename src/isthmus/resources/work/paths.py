"""Paths into objects: names joined by dots, `[]` for the items of a list, `{}` for the values of a map. Pure.

What is not there, or is of another shape than the path says, has no values: objects may come from an older version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

ITEMS, VALUES = "[]", "{}"


@lru_cache(maxsize=1024)
def steps_of(path: str) -> tuple[str, ...]:
    """The steps of a path: `a[].b` is `a`, `[]`, `b`."""
    found: list[str] = []
    for word in path.split("."):
        end = word[-2:] if word[-2:] in (ITEMS, VALUES) else ""
        found += [word.removesuffix(end), end] if end else [word]
    return tuple(found)


def values_at(obj: Any, path: str) -> Iterator[Any]:
    """All values at a path, without those that are not set."""
    return _values(obj, steps_of(path))


def _values(value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    if value is None:
        return
    if not steps:
        yield value
        return
    for _, inner in _below(value, steps[0]):
        yield from _values(inner, steps[1:])


def replaced_at(obj: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """A copy in which the values at a path are what `change` makes of them."""
    return _replaced(obj, steps_of(path), change)


def _replaced(value: Any, steps: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    if value is None or not steps:
        return value if value is None else change(value)
    found = {key: _replaced(inner, steps[1:], change) for key, inner in _below(value, steps[0])}
    if not found:
        return value
    return [found[at] for at in range(len(value))] if isinstance(value, list) else {**value, **found}


def _below(value: Any, step: str) -> list[tuple[Any, Any]]:
    if step == ITEMS:
        return list(enumerate(value)) if isinstance(value, list) else []
    if not isinstance(value, Mapping):
        return []
    if step == VALUES:
        return list(value.items())
    return [(step, value[step])] if step in value else []
