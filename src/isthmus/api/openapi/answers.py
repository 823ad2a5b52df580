"""Answers as OpenAPI 3.1 writes them: contents by media type, and one response per error code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

REFERENCE = "#/components/schemas/"
JSON = "application/json"
ERRORS = {
    400: "The request cannot be read.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The caller may not do this.",
    404: "There is no such thing, or it is not the caller's to know.",
    405: "The method is not offered here.",
    406: "No form that the client accepts is offered.",
    409: "Somebody else changed it since it was read, or the name is taken.",
    410: "The version or the continuation is too old: list again.",
    413: "The body is larger than the limit.",
    415: "The type of the body is not understood.",
    416: "The range lies beyond the end.",
    422: "The input is wrong; the causes name the fields.",
    429: "Too many requests.",
    500: "A fault of the server.",
    503: "A part that is needed does not answer just now; try again.",
}
READ_ERRORS = (400, 401, 403, 404, 405, 406, 410, 422, 429, 503)
WRITE_ERRORS = (*READ_ERRORS, 409, 413, 415)
OPEN_ERRORS = (400, 405, 503)


def ref(name: str) -> dict[str, str]:
    """A schema by its name."""
    return {"$ref": REFERENCE + name}


def content(schema: dict[str, Any], media: str = JSON) -> dict[str, Any]:
    """One media type."""
    return {media: {"schema": schema}}


def ok(description: str, schema: dict[str, Any], media: str = JSON, headers: dict[str, Any] | None = None) -> Any:
    """A response that brings something."""
    found = {"description": description, "content": content(schema, media)}
    return found | {"headers": headers} if headers else found


def errors(codes: Iterable[int]) -> dict[str, Any]:
    """The errors an operation may answer with."""
    return {str(code): {"$ref": f"#/components/responses/Error{code}"} for code in sorted(codes)}


def error_responses(codes: dict[int, str]) -> dict[str, Any]:
    """One response per code, to be referred to."""
    return {f"Error{code}": ok(text, ref("Status")) for code, text in codes.items()}
