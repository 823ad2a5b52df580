"""OpenAPI 2, which kubectl up to 1.26 downloads for `explain`, `apply` and the checks of `create`."""

from __future__ import annotations

from typing import Any

from isthmus import __version__
from isthmus.api.resources.targets import all_views
from isthmus.resources.schemas.documents import GROUP_VERSION_KIND, group_version_kind

from .definitions import DELETE_OPTIONS, PATCH, STATUS, definitions, long_name, plain
from .operations import ApiOperation, ApiParameter, operations
from .version3 import PATCH_TYPES

REFERENCE = "#/definitions/"


def document() -> dict[str, Any]:
    """The one document of everything served."""
    paths: dict[str, Any] = {}
    for operation in operations():
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    views = [view for found in all_views().values() for view in found.values()]
    return {
        "swagger": "2.0",
        "info": {"title": "Isthmus", "version": __version__},
        "paths": paths,
        "definitions": {name: _flat(plain(schema)) for name, schema in definitions(views, REFERENCE).items()},
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
    }


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """References by themselves: version 2 has no description beside them but takes one, and knows no allOf of one."""
    properties = schema.get("properties", {})
    for name, part in properties.items():
        if "allOf" in part:
            properties[name] = {"description": part.get("description", ""), **part["allOf"][0]}
    return schema


def _operation(operation: ApiOperation) -> dict[str, Any]:
    parameters = [_parameter(parameter) for parameter in operation.parameters]
    body = {"post": long_name(operation.kind), "put": long_name(operation.kind), "patch": PATCH}.get(operation.method)
    if operation.method == "delete":
        body = DELETE_OPTIONS
    if body is not None:
        parameters.append(
            {
                "name": "body",
                "in": "body",
                "required": operation.method != "delete",
                "schema": {"$ref": REFERENCE + body},
            }
        )
    answer = STATUS if operation.method == "delete" else long_name(operation.kind, _suffix(operation))
    return {
        "operationId": operation.id,
        "consumes": list(PATCH_TYPES) if operation.method == "patch" else ["application/json"],
        "produces": ["application/json"],
        "x-kubernetes-action": operation.action,
        GROUP_VERSION_KIND: group_version_kind(operation.kind),
        "parameters": parameters,
        "responses": {
            "200": {"description": "OK", "schema": {"$ref": REFERENCE + answer}},
            "401": {"description": "Unauthorized"},
        },
    }


def _suffix(operation: ApiOperation) -> str:
    return "List" if operation.action == "list" else ""


def _parameter(parameter: ApiParameter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.type,
    }
    if parameter.enum:
        found["enum"] = list(parameter.enum)
    return found | {"required": True} if parameter.place == "path" else found
