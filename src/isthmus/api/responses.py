"""Answers: JSON, and the one place where an error becomes an HTTP status and a Kubernetes Status object.

Errors of the tree in `errors.py` map by their class. What only HTTP knows (no such path, wrong method, wrong
content type) is raised as Starlette's `HTTPException`. Anything else is a fault of ours: it is logged, and the
caller learns nothing of it but that it happened.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Send

from isthmus.errors import (
    AlreadyExists,
    Conflict,
    EngineRefused,
    Expired,
    Forbidden,
    HostRefused,
    Invalid,
    IsthmusError,
    JobFailed,
    Misconfigured,
    NotFound,
    PortClosed,
    SiteUnavailable,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from isthmus.resources.kinds import KINDS

logger = logging.getLogger(__name__)

# From the most special to the most general: the first that fits is taken.
_HTTP: tuple[tuple[type[IsthmusError], int, str], ...] = (
    (TooLarge, 413, "RequestEntityTooLarge"),
    (Invalid, 422, "Invalid"),
    (Unauthenticated, 401, "Unauthorized"),
    (Forbidden, 403, "Forbidden"),
    (NotFound, 404, "NotFound"),
    (AlreadyExists, 409, "AlreadyExists"),
    (Conflict, 409, "Conflict"),
    (Expired, 410, "Expired"),
    (StoreUnavailable, 503, "ServiceUnavailable"),
    (SiteUnavailable, 503, "ServiceUnavailable"),
    (PortClosed, 503, "PortClosed"),
    (Unavailable, 503, "ServiceUnavailable"),
    (EngineRefused, 422, "Invalid"),
    (HostRefused, 422, "Invalid"),
    (JobFailed, 422, "Invalid"),
    (Misconfigured, 500, "InternalError"),
)
_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    411: "BadRequest",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    416: "BadRequest",
    429: "TooManyRequests",
}
JSON = "application/json"
JSON_HEADER = (b"content-type", b"application/json")


def status_object(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None, *, success: bool = False
) -> dict[str, Any]:
    """A Kubernetes Status."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if success else "Failure",
    }
    if not success:
        status |= {"message": message, "reason": reason}
    if details:
        status["details"] = dict(details)
    return status | {"code": code}


def status_of(error: Exception, what: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Status of an error; `what` (name, kind, group) says what the request was about, where that is known."""
    if isinstance(error, IsthmusError):
        code, reason = next(((c, r) for cls, c, r in _HTTP if isinstance(error, cls)), (500, "InternalError"))
        details: dict[str, Any] = dict(what or {})
        if isinstance(error, NotFound):
            details |= _missing(error)
        if error.code != reason:
            details["code"] = error.code
        if error.causes:
            details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in error.causes]
        if code == 503:
            details["retryAfterSeconds"] = _seconds(error.retry_after)
        return status_object(code, reason, error.message, {key: value for key, value in details.items() if value != ""})
    if isinstance(error, HTTPException):
        reason = _REASONS.get(error.status_code, "InternalError" if error.status_code >= 500 else "BadRequest")
        return status_object(error.status_code, reason, error.detail, what)
    return status_object(500, "InternalError", "something went wrong inside the server; its log says what", what)


def _missing(error: NotFound) -> dict[str, str]:
    """Which object is not there; the name is empty when it is something else that is missing."""
    kind = KINDS.get(error.kind)
    if kind is None:
        return {"name": ""}
    return {"group": kind.group, "kind": kind.plural, "namespace": error.namespace, "name": error.name}


def error_response(error: Exception, what: Mapping[str, Any] | None = None) -> Response:
    """The answer to a request that failed; logs what nobody foresaw."""
    if not isinstance(error, IsthmusError | HTTPException):
        logger.error("request failed", exc_info=error)
    status = status_of(error, what)
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    if status["code"] == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="isthmus"'
    if (after := (status.get("details") or {}).get("retryAfterSeconds")) is not None:
        headers["Retry-After"] = str(after)
    return json_response(status, status["code"], headers)


def json_response(content: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An object as JSON."""
    return Response(orjson.dumps(content), code, headers, JSON)


async def send_json(send: Send, data: bytes, code: int = 200) -> None:
    """Bytes that are JSON already, with no detour: the path of every read."""
    headers = [JSON_HEADER, (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def _seconds(after: float | None) -> int:
    return max(1, math.ceil(after)) if after is not None else 1
