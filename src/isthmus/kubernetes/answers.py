"""What an API server's answers mean, as errors of ours. Pure.

404 has two meanings that must never be mixed up: the object is not there, or the server does not know the kind (its
definition was removed, or is not served yet). The second is no statement about any object.

What an administrator must mend never says that the request was wrong: it is unavailable until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from isthmus.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    EngineRefused,
    Expired,
    Forbidden,
    Invalid,
    IsthmusError,
    NotFound,
    SiteUnavailable,
    StoreUnavailable,
    TooLarge,
    Unavailable,
)

_DENIED = "Forbidden"


@dataclass(frozen=True, slots=True)
class Meanings:
    """As which errors somebody wants to hear of answers."""

    unavailable: type[Unavailable]
    refused: type[IsthmusError]
    too_large: type[IsthmusError]
    unknown: str
    """What to do when the server does not know a kind."""
    account: str
    """What to do when it refuses us."""


STORE = Meanings(
    StoreUnavailable,
    Invalid,
    TooLarge,
    "define it with isthmus install --kubernetes",
    "check the kubeconfig, and the rights that isthmus install --kubernetes sets up",
)
SITE = Meanings(
    SiteUnavailable,
    EngineRefused,
    EngineRefused,
    "wait until it does, or ask an administrator of the cluster",
    "renew the site's kubeconfig, or give its account the rights that a site needs",
)


def error_of(code: int, body: bytes, what: str, meanings: Meanings, retry_after: float | None = None) -> IsthmusError:
    """The error of an answer with this code."""
    status = _status(body)
    said = str(status.get("message") or body[:300].decode(errors="replace")).strip()
    details = status.get("details") or {}
    message = f"{what}: {said}" if said else f"{what}: the API server answered {code}"
    match code:
        case 404 if details.get("name") or details.get("uid"):
            return NotFound(message)
        case 404:
            return meanings.unavailable(f"{what}: the cluster does not know this kind; {meanings.unknown}")
        case 409 if status.get("reason") == "AlreadyExists":
            return AlreadyExists(f"{message}; choose another name, or update it")
        case 409:
            return Conflict(f"{message}; read it again and apply the change to that")
        case 410:
            return Expired(f"{message}; list again")
        case 413:
            return meanings.too_large(message)
        case 400 | 415 | 422:
            return meanings.refused(message, causes=_causes(details))
        case 403 if any(cause.get("reason") == "NamespaceTerminating" for cause in details.get("causes") or ()):
            return Forbidden(f"{message}; wait until it is gone")
        case 403 if "exceeded quota" in said:
            return meanings.unavailable(f"{message}; the cluster has no room just now")
        case 401 | 403:
            why = Cause("", said, _DENIED)
            reported = f"{message}; the cluster refuses our account: {meanings.account}"
            return meanings.unavailable(reported, causes=(why,))
    return meanings.unavailable(message, retry_after=retry_after or details.get("retryAfterSeconds"))


def is_denied(error: IsthmusError) -> bool:
    """Whether the server answered that our account may not do this; with a namespace go the rights in it."""
    return any(cause.reason == _DENIED for cause in error.causes)


def event_error(obj: Mapping[str, Any], what: str, meanings: Meanings) -> IsthmusError:
    """The error that a watch delivers as an event."""
    return error_of(int(obj.get("code") or 500), orjson.dumps(obj), what, meanings)


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
