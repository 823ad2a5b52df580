"""OpenAPI 3.0 as Kubernetes publishes it: an index, and one document per group and version.

kubectl looks for two things: schemas marked with their kind (`explain`), and the parameters of each kind's PATCH,
where `fieldValidation` shows it that the server checks fields by itself.
"""

from __future__ import annotations

from typing import Any

from isthmus import __version__
from isthmus.api.resources.targets import all_views
from isthmus.resources.schemas.documents import GROUP_VERSION_KIND, group_version_kind

from .definitions import DELETE_OPTIONS, PATCH, STATUS, definitions, long_name
from .operations import ApiOperation, ApiParameter, operations

REFERENCE = "#/components/schemas/"
PATCH_TYPES = ("application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml")


def document(group: str, version: str) -> dict[str, Any]:
    """The document of one group and version."""
    paths: dict[str, Any] = {}
    for operation in operations(group, version):
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Isthmus", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": definitions(list(all_views()[group, version].values()), REFERENCE),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: ApiOperation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "x-kubernetes-action": operation.action,
        GROUP_VERSION_KIND: group_version_kind(operation.kind),
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": _ref(_answer(operation))}}},
            "401": {"description": "Unauthorized"},
        },
    }
    if operation.method in ("post", "put"):
        content = {"application/json": {"schema": _ref(long_name(operation.kind))}}
        found["requestBody"] = {"content": content, "required": True}
    elif operation.method == "patch":
        content = {media: {"schema": _ref(PATCH)} for media in PATCH_TYPES}
        found["requestBody"] = {"content": content, "required": True}
    elif operation.method == "delete":
        found["requestBody"] = {"content": {"application/json": {"schema": _ref(DELETE_OPTIONS)}}}
    return found


def _answer(operation: ApiOperation) -> str:
    if operation.method == "delete":
        return STATUS
    return long_name(operation.kind, "List" if operation.action == "list" else "")


def _parameter(parameter: ApiParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": schema,
    }
    return found | {"required": True} if parameter.place == "path" else found


def _ref(name: str) -> dict[str, str]:
    return {"$ref": REFERENCE + name}
