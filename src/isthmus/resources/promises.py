"""What may still change of an object whose work has begun: the rest was promised to an engine, or is being compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import Cause, Invalid

from .kinds import Kind


def check_promised(kind: Kind, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Invalid when a spec changes in what was promised. Both specs are whole, with defaults."""
    if kind.changes is None:
        return
    changed = differences(before, after, kind.changes)
    if changed:
        named, what = ", ".join(f"spec.{field}" for field in changed), kind.singular
        raise Invalid(
            f"{kind.name} {name!r} cannot change {named} any more; "
            f"only {', '.join(sorted(kind.changes))} may change after creation: create a new {what} instead",
            causes=tuple(
                Cause(f"spec.{field}", f"field is immutable: create a new {what} instead", "FieldValueForbidden")
                for field in changed
            ),
        )


def differences(before: Mapping[str, Any], after: Mapping[str, Any], free: frozenset[str]) -> list[str]:
    """The fields that differ, but for those that are free to."""
    return sorted(field for field in (before.keys() | after.keys()) - free if before.get(field) != after.get(field))
