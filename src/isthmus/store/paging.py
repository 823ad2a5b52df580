"""Continue tokens: where a list stopped, and at which version it began. Opaque to clients, checked when they return."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from isthmus.errors import Cause, Expired, Invalid

from .base import Record

MAX_TOKEN = 2048
"""Characters: a namespace and a name, encoded twice, are at most half of it."""


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
        if len(token) > MAX_TOKEN:
            raise ValueError
        version, namespace, name = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError, binascii.Error):
        version = namespace = name = None
    if type(version) is int and 0 <= version < 2**63 and _word(namespace) and _word(name):
        return Position(version, namespace, name)
    message = "the continue token cannot be read; list again from the beginning"
    raise Invalid(message, causes=(Cause("continue", message),))


def page_end(records: Sequence[Record], limit: int | None, most_bytes: int | None) -> int | None:
    """How many of some records are one page; None if all of them are. Some read more than they give, to know."""
    full = len(records) if limit is None else min(limit, len(records))
    if most_bytes is not None and sum([len(record.data) for record in records]) > most_bytes:
        total = 0
        for count, record in enumerate(records[:full], 1):
            total += len(record.data)
            if total > most_bytes:
                full = count
                break
    return full if full < len(records) else None


def _word(text: object) -> bool:
    return isinstance(text, str) and "\0" not in text


def require_kept(version: int, oldest: int, what: str) -> None:
    """Raise Expired unless every change after `version` is still kept, `oldest` being the oldest one."""
    if version < oldest - 1:
        raise Expired(
            f"{what} starts at version {version}, but changes are kept only from version {oldest} on; list again"
        )
