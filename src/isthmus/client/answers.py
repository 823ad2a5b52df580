"""Answers as data: from bytes to objects, and from Status objects to the one tree of errors. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus import errors
from isthmus.errors import Cause, IsthmusError

from .requests import Object

_BY_STATUS: Mapping[int, type[IsthmusError]] = {
    400: errors.Invalid,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
    413: errors.TooLarge,
    422: errors.Invalid,
    429: errors.Unavailable,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}


class Answer(NamedTuple):
    """What came back. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def read(answer: Answer) -> Object:
    """The object in the answer; raises what the server reports."""
    check(answer)
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.Unavailable(
            f"the server answered {answer.status} with something that is not a JSON object: "
            f"{_short(answer.body)}; is the address that of an Isthmus server?"
        )
    return found


def check(answer: Answer) -> None:
    """Raise what the server reports, if it reports a failure."""
    if answer.status >= 400:
        raise error_of(answer)
    if answer.status >= 300:
        where = answer.headers.get("location", "elsewhere")
        raise errors.Misconfigured(f"the server sends us on to {where}; use the address it answers at")


def error_of(answer: Answer) -> IsthmusError:
    """The error that an answer of 400 or above stands for."""
    try:
        status = json.loads(answer.body)
    except ValueError:
        status = None
    retry_after = _number(answer.headers.get("retry-after"))
    if not isinstance(status, dict) or status.get("kind") != "Status":
        message = f"the server answered {answer.status}: {_short(answer.body) or 'nothing more'}"
        return _BY_STATUS.get(answer.status, IsthmusError)(message, retry_after=retry_after)
    return error_of_status(status, answer.status, retry_after)


def error_of_status(status: Mapping[str, Any], code: int = 500, retry_after: float | None = None) -> IsthmusError:
    """The error that a Status object stands for."""
    details = status.get("details") or {}
    causes = tuple(
        Cause(str(c.get("field", "")), str(c.get("message", "")), str(c.get("reason", "FieldValueInvalid")))
        for c in details.get("causes") or ()
        if isinstance(c, dict)
    )
    number = int(_number(status.get("code")) or code)
    found = _classes().get(str(status.get("reason")), _BY_STATUS.get(number, IsthmusError))
    wait = _number(details.get("retryAfterSeconds")) or retry_after
    message = str(status.get("message") or f"the server answered {number}")
    if issubclass(found, errors.NotFound):
        kind, namespace, name = (str(details.get(word) or "") for word in ("kind", "namespace", "name"))
        return found(message, causes=causes, retry_after=wait, kind=kind, namespace=namespace, name=name)
    return found(message, causes=causes, retry_after=wait)


def _classes() -> dict[str, type[IsthmusError]]:
    """Every error by its code. `reason` in a Status is that code."""
    found: dict[str, type[IsthmusError]] = {}
    rest: list[type[IsthmusError]] = [IsthmusError]
    while rest:
        current = rest.pop()
        found.setdefault(current.code, current)
        rest += current.__subclasses__()
    return {**found, "BadRequest": errors.Invalid, "Gone": errors.Expired, "TooManyRequests": errors.Unavailable}


def _number(text: Any) -> float | None:
    try:
        return float(text) if text is not None else None
    except (TypeError, ValueError):
        return None


def _short(body: bytes) -> str:
    return " ".join(body[:300].decode(errors="replace").split())
