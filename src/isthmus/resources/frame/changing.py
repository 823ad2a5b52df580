"""What may still change of an object, and when: each kind declares it, and everybody who takes a change asks here.

The API asks before it takes a change, a control plane whose store others write to as well asks of what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.errors import Cause, Invalid

from .declarations import Kind


def check_change(kind: Kind, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Invalid when the spec changes where it may not, or not any more. Both objects are whole, with defaults."""
    if kind.changes is None:
        return
    name, what = before["metadata"]["name"], kind.singular
    phase = (before.get("status") or {}).get("phase")
    changed = differences(before["spec"], after["spec"])
    if fixed := [field for field in changed if field not in kind.changes]:
        raise Invalid(
            f"{kind.name} {name!r} cannot change {_named(fixed)} any more; "
            f"only {', '.join(sorted(kind.changes))} may change after creation: create a new {what} instead",
            causes=_causes(fixed, f"field is immutable: create a new {what} instead"),
        )
    if late := [field for field in changed if not kind.may_change(field, phase)]:
        when = "; ".join(sorted({kind.when(field) for field in late}))
        raise Invalid(
            f"{kind.name} {name!r} is {phase} and cannot change {_named(late)}, which may change only {when}: "
            f"create a new {what} instead",
            causes=_causes(late, f"may change only {when}"),
        )


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The fields that differ."""
    return sorted(field for field in before.keys() | after.keys() if before.get(field) != after.get(field))


def _named(fields: Iterable[str]) -> str:
    return ", ".join(f"spec.{field}" for field in fields)


def _causes(fields: Iterable[str], message: str) -> tuple[Cause, ...]:
    return tuple(Cause(f"spec.{field}", message, "FieldValueForbidden") for field in fields)
