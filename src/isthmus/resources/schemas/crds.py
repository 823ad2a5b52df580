"""The kinds as CustomResourceDefinitions (apiextensions.k8s.io/v1), made from the same models as everything else.

A server refuses by schema what the models refuse, as far as its language goes:

- types, bounds, patterns, enums and required fields come from `schemas.structural_schema`;
- the kind's own rules (`crd_rules`) add what only the models' own code checks;
- what neither can say is found by the operator, which reports it on the object with the same sentence.

The status has a default, so that a new object has a phase before the operator has looked at it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from isthmus.resources.kinds import KINDS, Column, Kind
from isthmus.resources.work.paths import ITEMS, VALUES, steps_of

from .crd_rules import SchemaRule
from .documents import GROUP_VERSION_KIND, Schema, structural_schema

OLDEST, NEWEST = 20, 36
"""The minor versions of Kubernetes 1.x that are supported."""
CEL_SINCE, SELECTABLE_SINCE = 25, 31
_INNER = {ITEMS: "items", VALUES: "additionalProperties"}
VALIDATIONS = "x-kubernetes-validations"
MANAGED_BY = {"app.kubernetes.io/name": "isthmus", "app.kubernetes.io/managed-by": "isthmus"}


def custom_kinds() -> list[Kind]:
    """The kinds that Kubernetes does not have by itself."""
    return [kind for kind in KINDS.values() if kind.custom]


def custom_resource(kind: Kind, minor: int = OLDEST) -> dict[str, Any]:
    """The definition of a kind for servers from 1.`minor` on; one for 1.20 is understood by all."""
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind, minor)},
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    for part in ("subresources", "additionalPrinterColumns"):
        if not version[part]:  # a server leaves an empty one out, and would then see a change in every repetition
            del version[part]
    if minor >= SELECTABLE_SINCE and kind.fields:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in kind.fields]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": dict(MANAGED_BY)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "plural": kind.plural,
                "singular": kind.singular,
                "kind": kind.name,
                "listKind": kind.list_kind,
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "versions": [version],
        },
    }


def custom_resources(minor: int = OLDEST) -> list[dict[str, Any]]:
    """The definitions of all kinds."""
    return [custom_resource(kind, minor) for kind in custom_kinds()]


def _schema(kind: Kind, minor: int) -> Schema:
    schema = structural_schema(kind)
    del schema[GROUP_VERSION_KIND]
    _drop_empty_defaults(schema)
    if (status := _initial_status(kind.model)) is not None:
        schema["properties"]["status"]["default"] = status
    for rule in kind.crd_rules:
        _apply(schema, rule, minor)
    return schema


def _drop_empty_defaults(schema: Schema) -> None:
    """Servers of 1.20 take an empty text as a default for null, and refuse it. The models fill it in anyway."""
    if schema.get("default") == "":
        del schema["default"]
    for part in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            _drop_empty_defaults(part)


def _initial_status(model: type[BaseModel]) -> Any:
    made = (
        model.model_fields["status"].get_default(call_default_factory=True) if "status" in model.model_fields else None
    )
    return made.to_json() if made is not None else None


def _apply(schema: Schema, rule: SchemaRule, minor: int) -> None:
    place = _at(schema, rule.path)
    if rule.cel and minor >= CEL_SINCE:
        place.setdefault(VALIDATIONS, []).append({"rule": rule.cel, "message": rule.message})
        return
    for word, value in rule.schema.items():
        if word in place and word in ("not", "anyOf", "oneOf"):
            place.setdefault("allOf", []).append({word: value})
        else:
            place[word] = value


def _at(schema: Schema, path: str) -> Schema:
    for part in steps_of(path):
        schema = schema[_INNER[part]] if part in _INNER else schema.setdefault("properties", {}).setdefault(part, {})
    return schema


def _subresources(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        wanted, seen = kind.scale
        found["scale"] = {"specReplicasPath": wanted, "statusReplicasPath": seen}
    return found


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        found["priority"] = column.priority
    if column.description:
        found["description"] = column.description
    return found
