"""What an API server's answers mean, as errors of ours. Pure.

404 has two meanings that must never be mixed up: the object is not there, or the server does not know the kind (its
definition was removed). The second is no statement about any object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from isthmus.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    IsthmusError,
    NotFound,
    StoreUnavailable,
    TooLarge,
)


def error_of(code: int, body: bytes, what: str) -> IsthmusError:
    """The error of an answer with this code."""
    status = _status(body)
    said = str(status.get("message") or body[:200].decode(errors="replace")).strip()
    details = status.get("details") or {}
    message = f"{what}: {said}" if said else f"{what}: the API server answered {code}"
    match code:
        case 404 if details.get("name") or details.get("uid"):
            return NotFound(message)
        case 404:
            return StoreUnavailable(
                f"{what}: the cluster does not know this kind; define it with isthmus install --kubernetes"
            )
        case 409 if status.get("reason") == "AlreadyExists":
            return AlreadyExists(f"{message}; choose another name, or update it")
        case 409:
            return Conflict(f"{message}; read it again and apply the change to that")
        case 410:
            return Expired(f"{message}; list again")
        case 413:
            return TooLarge(message)
        case 400 | 415 | 422:
            return Invalid(message, causes=_causes(details))
        case 403 if any(cause.get("reason") == "NamespaceTerminating" for cause in details.get("causes") or ()):
            return Forbidden(f"{message}; wait until it is gone")
        case 401 | 403:
            return StoreUnavailable(
                f"{message}; the cluster refuses our account: check the kubeconfig, and the rights that "
                "isthmus install --kubernetes sets up"
            )
    return StoreUnavailable(message, retry_after=details.get("retryAfterSeconds"))


def event_error(obj: Mapping[str, Any]) -> IsthmusError:
    """The error that a watch delivers as an event."""
    return error_of(int(obj.get("code") or 500), orjson.dumps(obj), "the watch ended")


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def _causes(details: Mapping[str, Any]) -> tuple[Cause, ...]:
    return tuple(
        Cause(str(cause.get("field", "")), str(cause.get("message", "")), str(cause.get("reason", "FieldValueInvalid")))
        for cause in details.get("causes") or ()
    )
