"""From plain JSON to a checked object: defaults filled in, faults named by field with their remedies.

A document can be wrong in more places than anybody wants to read, and naming each costs more than the document did.
So the first `MAX_CAUSES` are named, each in a bounded sentence; of one with more than `MAX_FAULTS` only the number is
given.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from isthmus.errors import Cause, Invalid
from isthmus.resources.kinds import Kind

from . import wording

M = TypeVar("M", bound=BaseModel)

MAX_CAUSES = 50
MAX_FAULTS = 10_000
_MAX_SENTENCE, _MAX_FIELD = 500, 250
_GPUS = ("gpu", "gpus")
_GPUS_ARE_DEVICES = (
    "GPUs are devices: write resources: {devices: [{class: CLASS, count: 1}]}; `isthmus devices` lists the classes"
)
_REASONS = {"missing": "FieldValueRequired", "extra_forbidden": "FieldValueForbidden"}


def validate(kind: Kind, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object with its defaults, as plain JSON; raises Invalid that names every wrong field."""
    return parse(kind.model, obj, kind.name).model_dump(mode="json", by_alias=True, exclude_none=True)


def parse(model: type[M], obj: Mapping[str, Any], what: str = "") -> M:
    """The typed object."""
    try:
        return model.model_validate(obj)
    except ValidationError as error:
        count = error.error_count()
        faults = error.errors(include_url=False) if count <= MAX_FAULTS else []
        causes = tuple(_cause(model, item) for item in faults[:MAX_CAUSES])
        name = (obj.get("metadata") or {}).get("name") if isinstance(obj.get("metadata"), dict) else None
        title = f"{what or model.__name__} {str(name)[:80]!r}" if name else what or model.__name__
        if not faults:
            raise Invalid(f"{title} is invalid in {count} places; is it of this kind at all?") from None
        reported = "; ".join(f"{c.field}: {c.message}" if c.field else c.message for c in causes[:5])
        more = f" (and {count - 5} more)" if count > 5 else ""
        raise Invalid(f"{title} is invalid: {reported}{more}", causes=causes) from None


def _cause(model: type[BaseModel], item: Any) -> Cause:
    place, kind = item["loc"], item["type"]
    field = ""
    for part in place:
        if isinstance(part, int):
            field += f"[{part}]"
        elif part != "[key]":
            field += f".{part}" if field else str(part)
    sentence = _shortened(_sentence(model, place, kind, item), _MAX_SENTENCE)
    return Cause(_shortened(field, _MAX_FIELD), sentence, _REASONS.get(kind, "FieldValueInvalid"))


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _sentence(model: type[BaseModel], place: tuple[Any, ...], kind: str, item: Any) -> str:
    if kind == "extra_forbidden":
        known = _fields_at(model, place[:-1])
        near = difflib.get_close_matches(str(place[-1])[:64], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        if str(place[-1]).lower() in _GPUS and {"resources", "devices"} & set(known):
            hint = _GPUS_ARE_DEVICES
        return f"there is no such field; {hint}"
    if place[-1:] == ("password",):  # what was sent there is not repeated
        return "must be a text of 1 to 8192 characters"
    if kind == "missing":
        return "is required"
    if kind == "string_pattern_mismatch":
        shown = str(item["input"])[:80]
        if place[-1:] == ("name",):
            return f"{shown!r} is not a name: use a-z, 0-9, - and ., begin and end with a letter or digit"
        return f"{shown!r} does not match {item['ctx']['pattern']}"
    example = _example(model, place, item["input"]) if kind in _OF_MAPS else ""
    if made := wording.sentence(kind, item["input"], item.get("ctx") or {}, _fields_at(model, place), example):
        return made
    message = str(item["msg"])
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


_OF_MAPS = ("list_type", "tuple_type", "set_type", "model_type", "model_attributes_type")


def _example(model: type[BaseModel], place: tuple[Any, ...], value: Any) -> str:
    """The map that may have been meant by what was written in its place: one that would be accepted."""
    inner = _model_at(model, place)
    if inner is None:
        return ""
    for meant in wording.likely(_fields_at(model, place), value):
        try:
            inner.model_validate(meant)
        except ValidationError:
            continue
        return wording.flow(meant)
    return ""


def _fields_at(model: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    """The names of the fields at a place in the model, as a user writes them."""
    found = _model_at(model, place)
    return [] if found is None else [f.alias or n for n, f in found.model_fields.items()]


def _model_at(model: type[BaseModel], place: tuple[Any, ...]) -> type[BaseModel] | None:
    current: Any = model
    for part in place:
        if isinstance(part, int):
            continue
        found = next((f for n, f in current.model_fields.items() if (f.alias or n) == part), None)
        if found is None or (current := _model_in(found.annotation)) is None:
            return None
    return current  # type: ignore[no-any-return]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for arg in getattr(annotation, "__args__", ()) if (m := _model_in(arg))), None)


def check_name(kind: Kind, name: str) -> None:
    """A name is there and of the right form."""
    if not name:
        raise Invalid(
            f"{kind.name} has no name; set metadata.name or metadata.generateName",
            causes=(Cause("metadata.name", "name or generateName is required", "FieldValueRequired"),),
        )
