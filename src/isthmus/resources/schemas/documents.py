"""Schemas of the kinds, made from the models: plain JSON Schema, and the structural form that Kubernetes reads.

`json_schema` is draft 2020-12 with `$defs`, for editors and documentation. `structural_schema` is the subset that
CRDs and `kubectl explain` take: nothing by reference, every value of one type, no null beside it, no closed
objects, maps instead of patterns of keys, and `x-kubernetes-int-or-string` where a model takes both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from isthmus.resources.kinds import Kind

Schema = dict[str, Any]

JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
INT_OR_STRING = "x-kubernetes-int-or-string"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"

API_VERSION_TEXT = "Which version of the kind this is, as group/version."
KIND_TEXT = "Which kind of object this is."
_KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "multipleOf",
)


def json_schema(kind: Kind) -> Schema:
    """The JSON Schema of a kind."""
    schema = _widened(kind.model.model_json_schema(by_alias=True))
    name = f"{kind.plural}.{kind.group or 'core'}"
    return {"$schema": JSON_SCHEMA, "$id": f"https://isthmus.dev/schemas/{name}/{kind.version}.json", **schema}


def component_schemas(models: list[type[BaseModel]], template: str) -> dict[str, Schema]:
    """Schemas of models and of everything they use, that refer to each other by the template."""
    modes = [(model, "validation") for model in models]
    _, found = models_json_schema(modes, by_alias=True, ref_template=template)  # type: ignore[arg-type]
    return {name: _widened(schema) for name, schema in found.get("$defs", {}).items()}


def structural_schema(kind: Kind) -> Schema:
    """The structural schema of a kind; its metadata is left open, as Kubernetes wants it of CRDs."""
    schema = structural_model(kind.model)
    schema["properties"]["apiVersion"] = {"type": "string", "description": API_VERSION_TEXT}
    schema["properties"]["kind"] = {"type": "string", "description": KIND_TEXT}
    schema["properties"]["metadata"] = {"type": "object"}
    schema[GROUP_VERSION_KIND] = [group_version_kind(kind)]
    return schema


def structural_model(model: type[BaseModel]) -> Schema:
    """The structural schema of any model."""
    whole = model.model_json_schema(by_alias=True)
    return _structural(whole, whole.get("$defs", {}))


def group_version_kind(kind: Kind) -> dict[str, str]:
    """What Kubernetes calls a kind."""
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _widened(schema: Any) -> Any:
    """Amounts may be written as numbers too, which the type of the model's field does not show."""
    if isinstance(schema, list):
        return [_widened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _widened(value) for key, value in schema.items()}
    if _default_is_wrong(found):
        del found["default"]
    return found | {"type": ["string", "number"]} if found.get(INT_OR_STRING) is True else found


def _default_is_wrong(schema: Mapping[str, Any]) -> bool:
    """Whether the default only stands for "not set yet", such as the empty name, which nobody may write."""
    default, pattern = schema.get("default"), schema.get("pattern")
    return isinstance(default, str) and isinstance(pattern, str) and not re.search(pattern, default)


def _structural(schema: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema:
    merged = _merged(schema, defs)
    if merged.get(INT_OR_STRING):
        kept: Schema = {
            key: merged[key] for key in ("description", "default", "pattern") if merged.get(key) is not None
        }
        return {**kept, INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    found: Schema = {key: merged[key] for key in _KEPT if key in merged}
    if "const" in merged:
        found["enum"] = [merged["const"]]
    if "default" in found and (found["default"] is None or _default_is_wrong(found)):
        del found["default"]
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in merged:
            found |= {bound: merged[exclusive], exclusive: True}
    if "properties" in merged:
        found["properties"] = {name: _structural(part, defs) for name, part in merged["properties"].items()}
        if merged.get("required"):
            found["required"] = list(merged["required"])
    elif found.get("type") == "object":
        found |= _map(merged, defs)
    if "items" in merged:
        items = found["items"] = _structural(merged["items"], defs)
        if "description" in items:
            found.setdefault("description", items["description"])
    if "type" not in found:
        found[PRESERVE] = True
    return found


def _merged(schema: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema:
    """One level with its reference followed and its null dropped; what stands nearer counts more."""
    found = dict(schema)
    while "$ref" in found or "anyOf" in found or "allOf" in found:
        reference, either = found.pop("$ref", None), found.pop("anyOf", None) or found.pop("allOf", None)
        if reference is not None:
            below = defs[reference.rpartition("/")[2]]
        else:
            parts = [part for part in either or () if part.get("type") != "null"]
            if len(parts) != 1:
                raise ValueError(f"a structural schema has no choice between {parts}")
            below = parts[0]
        found = {**below, **found}
    return found


def _map(merged: Mapping[str, Any], defs: Mapping[str, Schema]) -> Schema:
    """An object of any keys: what its values are, or that they are anything."""
    values = next(iter((merged.get("patternProperties") or {}).values()), merged.get("additionalProperties"))
    if isinstance(values, Mapping) and values:
        return {"additionalProperties": _structural(values, defs)}
    return {PRESERVE: True}
