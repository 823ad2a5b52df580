"""What may still change of an object whose work has begun: the rest was promised to an engine, or is being compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import Cause, Invalid

from . import experiments, jobs
from .kinds import EXPERIMENT, JOB, Kind

FREE: Mapping[str, frozenset[str]] = {JOB.name: jobs.MUTABLE, EXPERIMENT.name: experiments.MUTABLE}


def check_promised(kind: Kind, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Invalid when a spec changes in what was promised. Both specs are whole, with defaults."""
    free = FREE.get(kind.name)
    if free is None:
        return
    changed = sorted(field for field in (before.keys() | after.keys()) - free if before.get(field) != after.get(field))
    if changed:
        named, what = ", ".join(f"spec.{field}" for field in changed), kind.singular
        raise Invalid(
            f"{kind.name} {name!r} cannot change {named} any more; "
            f"only {', '.join(sorted(free))} may change after creation: create a new {what} instead",
            causes=tuple(
                Cause(f"spec.{field}", f"field is immutable: create a new {what} instead", "FieldValueForbidden")
                for field in changed
            ),
        )
