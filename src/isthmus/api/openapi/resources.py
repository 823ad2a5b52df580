"""The kinds in the whole document: each operation with its parameters, bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from isthmus.api.resources.targets import all_views
from isthmus.resources.frame.meta import NAME_PATTERN
from isthmus.resources.kinds import Kind
from isthmus.resources.schemas.documents import Schema

from .answers import READ_ERRORS, WRITE_ERRORS, content, errors, ok, ref
from .operations import ApiOperation, ApiParameter, operations

_VERBS = {
    "list": "List or watch",
    "get": "Read",
    "post": "Create",
    "put": "Replace",
    "patch": "Change some fields of",
    "delete": "Delete",
    "deletecollection": "Delete all that match of",
}
WATCH = "application/json;stream=watch"
_APART = ("watch", "allowWatchBookmarks", "timeoutSeconds", "resourceVersion", "resourceVersionMatch", "continue")
_IN_BODY = ("gracePeriodSeconds", "propagationPolicy")
_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[^\s=!,()]*"
_LABELS = rf"(!?{_KEY}|{_KEY}(=|==|!=){_VALUE}|{_KEY} (in|notin) \({_VALUE}(,{_VALUE})*\))"


def operations_of_kinds() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of everything that can be done with kinds."""
    for operation in operations():
        yield operation.path, operation.method, _operation(operation)


def list_schemas() -> dict[str, Schema]:
    """What lists look like."""
    found: dict[str, Schema] = {}
    for views in all_views().values():
        for view in views.values():
            kind = view.kind
            found[kind.list_kind] = {
                "type": "object",
                "description": f"Many of {kind.name}.",
                "required": ["apiVersion", "kind", "metadata", "items"],
                "properties": {
                    "apiVersion": {"const": kind.api_version},
                    "kind": {"const": kind.list_kind},
                    "metadata": ref("ListMeta"),
                    "items": {"type": "array", "items": ref(kind.name)},
                },
            }
    return found


def parameter(given: ApiParameter) -> dict[str, Any]:
    """One parameter."""
    limits = {"minimum": given.minimum, "maximum": given.maximum, "pattern": given.pattern or None}
    schema: dict[str, Any] = {
        "type": given.type,
        **{word: limit for word, limit in limits.items() if limit is not None},
    }
    if given.enum:
        schema["enum"] = list(given.enum)
    if given.place == "path" and not given.pattern and given.name == "name":
        schema["pattern"] = NAME_PATTERN
    found: dict[str, Any] = {"name": given.name, "in": given.place, "description": given.description, "schema": schema}
    return found | {"required": True} if given.place == "path" else found


def apart(*given: ApiParameter) -> dict[str, Any]:
    """Parameters that make an answer endless, or whose values only the server can give.

    They are reported in words and beside the others, because tools that try every parameter would wait or fail.
    """
    reported = "; ".join(f"`{one.name}`: {one.description}" for one in given)
    return {"description": f"Also takes {reported}.", "x-parameters-apart": [parameter(one) for one in given]}


def _operation(operation: ApiOperation) -> dict[str, Any]:
    kind = operation.kind
    what = f"the {operation.subresource} of a {kind.name}" if operation.subresource else _named(operation)
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": f"{_VERBS[operation.action]} {what}",
        "tags": [kind.name],
        "parameters": [
            parameter(_selector(kind, given))
            for given in operation.parameters
            if given.name not in (*_APART, *_IN_BODY)
        ],
        "responses": _responses(operation),
    }
    if others := [given for given in operation.parameters if given.name in _APART]:
        found |= apart(*others)
    if (body := _body(operation)) is not None:
        found["requestBody"] = body
    return found


def _selector(kind: Kind, given: ApiParameter) -> ApiParameter:
    """Selectors with their grammar: a text of any other form is refused."""
    if given.name == "labelSelector":
        return replace(given, pattern=f"^({_LABELS}(,{_LABELS})*)?$")
    if given.name == "fieldSelector":
        fields = "|".join(re.escape(name) for name in ("metadata.name", "metadata.namespace", *kind.fields))
        one = f"({fields})(=|==|!=){_VALUE}"
        return replace(given, pattern=f"^({one}(,{one})*)?$")
    return given


def _named(operation: ApiOperation) -> str:
    many = operation.action in ("list", "deletecollection")
    return f"{operation.kind.plural}" if many else f"a {operation.kind.name}"


def _body(operation: ApiOperation) -> dict[str, Any] | None:
    kind: Kind = operation.kind
    if operation.method in ("post", "put"):
        return {
            "required": True,
            "content": {**content(ref(kind.name)), **content(ref(kind.name), "application/yaml")},
        }
    if operation.method == "patch":
        applied: dict[str, Any] = {"type": "object", "description": "What the manager wants of the object."}
        return {
            "required": True,
            "content": {
                **content({"type": "object", "description": "RFC 7386"}, "application/merge-patch+json"),
                **content(ref("JsonPatch"), "application/json-patch+json"),
                **content(applied, "application/apply-patch+yaml"),
            },
        }
    if operation.method == "delete":
        return {"content": content(ref("DeleteOptions"))}
    return None


def _responses(operation: ApiOperation) -> dict[str, Any]:
    name = operation.kind.name
    if operation.action == "list":
        answer = ok("The list; with watch=true, changes as they happen.", ref(operation.kind.list_kind))
        answer["content"] |= content(ref("WatchEvent"), WATCH)
        found = {"200": answer}
    elif operation.action == "deletecollection":
        found = {"200": ok("Those that were deleted.", ref(operation.kind.list_kind))}
    elif operation.action == "delete":
        either = {"anyOf": [ref("Status"), ref(name)]}
        found = {"200": ok("Done; or the object, marked, while something still holds it.", either)}
    elif operation.action == "post":
        found = {"201": ok("Created.", ref(name))}
    else:
        found = {"200": ok("The object.", ref(name))}
    if operation.action == "patch" and not operation.subresource:
        found["201"] = ok("Created by applying it.", ref(name))
    return found | errors(READ_ERRORS if operation.method == "get" else WRITE_ERRORS)
