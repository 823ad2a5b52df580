"""Definitions: the structural schemas of the kinds and of what Kubernetes' documents share, by their long names.

References are written `#/definitions/…` or `#/components/schemas/…`; the two forms differ in nothing else but
what each may say, which `plain` cuts down for version 2.
"""

from __future__ import annotations

from typing import Any

from isthmus.api.resources.targets import KindView
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.kinds import Kind
from isthmus.resources.schemas.documents import (
    API_VERSION_TEXT,
    GROUP_VERSION_KIND,
    INT_OR_STRING,
    KIND_TEXT,
    PRESERVE,
    Schema,
    group_version_kind,
    structural_model,
    structural_schema,
)

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{_META}.ObjectMeta"
LIST_META = f"{_META}.ListMeta"
STATUS = f"{_META}.Status"
DELETE_OPTIONS = f"{_META}.DeleteOptions"
PATCH = f"{_META}.Patch"


def long_name(kind: Kind, suffix: str = "") -> str:
    """`dev.isthmus.v1.Job`; kinds of Kubernetes' core keep the name they have there."""
    prefix = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{prefix}.{kind.version}.{kind.name}{suffix}"


def definitions(views: list[KindView], reference: str) -> dict[str, Schema]:
    """The schemas of these kinds and their lists, and the shared ones."""
    found = shared()
    for view in views:
        kind = view.kind
        schema = _namespace(kind) if view.read_only else structural_schema(kind)
        schema["properties"]["metadata"] = {
            "description": "Name and bookkeeping.",
            "allOf": [{"$ref": reference + OBJECT_META}],
        }
        found[long_name(kind)] = schema
        found[long_name(kind, "List")] = _list(kind, reference)
    return found


def shared() -> dict[str, Schema]:
    """What every document needs."""
    meta = structural_model(ObjectMeta)
    meta["properties"] |= {
        "selfLink": {"type": "string", "description": "Not used."},
        "managedFields": {
            "type": "array",
            "description": "Accepted from Kubernetes' clients and not kept.",
            "items": {"type": "object", PRESERVE: True},
        },
    }
    text, number = {"type": "string"}, {"type": "integer", "format": "int64"}
    status = {name: dict(text) for name in ("apiVersion", "kind", "status", "message", "reason")}
    cause = {"type": "object", "properties": {name: dict(text) for name in ("field", "message", "reason")}}
    details = {name: dict(text) for name in ("name", "group", "kind", "uid", "code")}
    return {
        OBJECT_META: meta,
        LIST_META: _object(
            "Of a list: the version it was made at, and how to go on.",
            {"resourceVersion": text, "continue": text, "remainingItemCount": number, "selfLink": text},
        ),
        STATUS: _object(
            "How a request ended.",
            {
                **status,
                "code": {"type": "integer", "format": "int32"},
                "metadata": {"type": "object", PRESERVE: True},
                "details": _object(
                    "What it is about.",
                    {**details, "retryAfterSeconds": number, "causes": {"type": "array", "items": cause}},
                ),
            },
        ),
        DELETE_OPTIONS: _object(
            "How to delete.",
            {
                **{name: dict(text) for name in ("apiVersion", "kind", "propagationPolicy")},
                "dryRun": {"type": "array", "items": text},
                "gracePeriodSeconds": number,
                "orphanDependents": {"type": "boolean"},
                "preconditions": _object("What must be true.", {"uid": text, "resourceVersion": text}),
            },
        ),
        PATCH: {"type": "object", "description": "A merge patch, a JSON patch or an applied object.", PRESERVE: True},
    }


def plain(schema: Any) -> Any:
    """The same in the words of version 2: no choices, so that amounts are text (which kubectl lets numbers be)."""
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get(INT_OR_STRING) is True:
        return {key: value for key, value in schema.items() if key != "anyOf"} | {"type": "string"}
    return {key: plain(value) for key, value in schema.items()}


def _object(description: str, properties: dict[str, Any]) -> Schema:
    return {"type": "object", "description": description, "properties": properties}


def _list(kind: Kind, reference: str) -> Schema:
    properties = {
        "apiVersion": {"type": "string", "description": API_VERSION_TEXT},
        "kind": {"type": "string", "description": KIND_TEXT},
        "metadata": {"description": "Of the list.", "allOf": [{"$ref": reference + LIST_META}]},
        "items": {"type": "array", "items": {"$ref": reference + long_name(kind)}},
    }
    gvk = group_version_kind(kind) | {"kind": kind.list_kind}
    return {**_object(f"Many of {kind.name}.", properties), "required": ["items"], GROUP_VERSION_KIND: [gvk]}


def _namespace(kind: Kind) -> Schema:
    strings = {"type": "array", "items": {"type": "string"}}
    properties = {
        "apiVersion": {"type": "string", "description": API_VERSION_TEXT},
        "kind": {"type": "string", "description": KIND_TEXT},
        "metadata": {"type": "object"},
        "spec": _object("What is wanted.", {"finalizers": strings}),
        "status": _object("What was seen.", {"phase": {"type": "string", "enum": ["Active", "Terminating"]}}),
    }
    return {**_object(kind.description, properties), GROUP_VERSION_KIND: [group_version_kind(kind)]}
