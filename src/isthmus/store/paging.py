"""Continue tokens: where a list stopped, and at which version it began. Opaque to clients, checked when they return."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

import orjson

from isthmus.errors import Cause, Expired, Invalid


class Position(NamedTuple):
    """After which object a list goes on, and the version of its first page."""

    version: int
    namespace: str
    name: str


def encode_position(position: Position) -> str:
    """The token."""
    return base64.urlsafe_b64encode(orjson.dumps(tuple(position))).decode().rstrip("=")


def decode_position(token: str) -> Position:
    """The position in a token; raises Invalid for one that we did not make."""
    try:
        version, namespace, name = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError, binascii.Error):
        version = namespace = name = None
    if type(version) is int and isinstance(namespace, str) and isinstance(name, str):
        return Position(version, namespace, name)
    message = "the continue token cannot be read; list again from the beginning"
    raise Invalid(message, causes=(Cause("continue", message),))


def require_kept(version: int, oldest: int, what: str) -> None:
    """Raise Expired unless every change after `version` is still kept, `oldest` being the oldest one."""
    if version < oldest - 1:
        raise Expired(
            f"{what} starts at version {version}, but changes are kept only from version {oldest} on; list again"
        )
