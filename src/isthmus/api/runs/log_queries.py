"""What a request for a log asks for, read and checked: nothing here touches a log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.api.streams import EVENT_STREAM
from isthmus.engines.base import Stream as Output
from isthmus.errors import Cause, Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

MAX_OFFSET = 2**62
MAX_LINES = 100_000
_MAX_ATTEMPT = 100_000
_EVENT_ID = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,19})")
_TRUE, _FALSE = ("true", "1", "t"), ("false", "0", "f", "")


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which bytes, and in which form."""

    output: Output
    follow: bool
    offset: int
    tail: int | None
    limit: int | None
    attempt: int | None
    attempt_fixed: bool
    """Whether the caller named the attempt: then a later one is not gone on with."""
    events: bool

    @classmethod
    def of(cls, request: Request) -> LogQuery:
        """Read it; raises Invalid that names the parameter. Parameters that mean nothing here are passed over."""
        query = request.query_params
        stream = query.get("stream", Output.STDOUT.value)
        if stream not in tuple(Output):
            raise _wrong("stream", f"{stream[:40]!r} is not an output; write stdout or stderr")
        offset = number_in(query, "offset", 0, MAX_OFFSET)
        tail = number_in(query, "tailLines", 0, MAX_LINES)
        attempt = number_in(query, "attempt", 0, _MAX_ATTEMPT)
        fixed = attempt is not None
        events = EVENT_STREAM in request.headers.get("accept", "")
        if events and (last := request.headers.get("last-event-id")):
            named, offset, tail = *_event_id(last), None
            attempt = named if attempt is None else attempt
        return cls(
            output=Output(stream),
            follow=_flag(query, "follow"),
            offset=offset or 0,
            tail=tail,
            limit=number_in(query, "limitBytes", 1, MAX_OFFSET),
            attempt=attempt,
            attempt_fixed=fixed,
            events=events,
        )


def _event_id(text: str) -> tuple[int | None, int]:
    match = _EVENT_ID.fullmatch(text)
    if not match or int(match[2]) > MAX_OFFSET:
        raise _wrong("Last-Event-ID", f"{text[:40]!r} is not the id of an event of a log")
    return (int(match[1]) if match[1] else None), int(match[2])


def number_in(query: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number between bounds; raises Invalid that names the parameter."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not re.fullmatch(r"[0-9]{1,20}", text) or not least <= int(text) <= most:
        raise _wrong(name, f"{text[:40]!r} is not a whole number from {least} to {most}")
    return int(text)


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in (*_TRUE, *_FALSE):
        raise _wrong(name, f"{text[:40]!r} is neither true nor false")
    return text in _TRUE


def _wrong(name: str, message: str) -> Invalid:
    return Invalid(f"{name}: {message}", causes=(Cause(name, message),))
