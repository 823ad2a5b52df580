"""One message of a connection: a kind, the stream that it belongs to, and a payload of bounded size. Pure.

```
 0      1             5
 ┌──────┬─────────────┬──────────────┐
 │ kind │ stream (be) │ payload …    │
 └──────┴─────────────┴──────────────┘
```

Stream 0 is the connection itself. A document is JSON with an object at its top.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any, NamedTuple

import orjson

PIECE = 32 * 1024
"""Bytes of data in one frame: on a slow link, what a control message waits for."""
DOCUMENT = 64 * 1024
"""Bytes of a document in one frame; what is longer goes as data."""
HEADER = struct.Struct(">BI")
LARGEST = HEADER.size + DOCUMENT
"""Bytes of the longest frame."""
LAST_STREAM = 2**32 - 1
_CREDIT = struct.Struct(">I")
_CLOCKS = struct.Struct(">dd")


class ProtocolViolation(Exception):
    """The other side said something that it may not: the connection ends."""


class FrameKind(IntEnum):
    """What a frame is for."""

    HELLO = 1
    """Who speaks, at the beginning of a connection."""
    OPEN = 2
    """A call: its stream begins."""
    DATA = 3
    """Part of what a stream carries; costs credit."""
    END = 4
    """Whoever sends it has sent everything; with the result of the call, where it is the answer."""
    FAIL = 5
    """The stream is over on both sides, for this reason."""
    CREDIT = 6
    """So many more bytes may be sent."""
    PING = 7
    """Are you there? With the sender's clock."""
    PONG = 8
    """Yes; with the clock of the question, and one's own."""


class Frame(NamedTuple):
    """A parsed frame."""

    kind: FrameKind
    stream: int
    payload: bytes

    def encode(self) -> bytes:
        """As it is sent."""
        return HEADER.pack(self.kind, self.stream) + self.payload


def parse_frame(message: bytes) -> Frame:
    """A message as a frame; raises ProtocolViolation."""
    if not HEADER.size <= len(message) <= LARGEST:
        raise ProtocolViolation(f"a frame of {len(message)} bytes")
    kind, stream = HEADER.unpack_from(message)
    try:
        return Frame(FrameKind(kind), stream, message[HEADER.size :])
    except ValueError:
        raise ProtocolViolation(f"a frame of the unknown kind {kind}") from None


def stream_of(message: bytes) -> int:
    """The stream of a frame that we made ourselves."""
    stream: int = HEADER.unpack_from(message)[1]
    return stream


def parse_value(payload: bytes) -> object:
    """The JSON value in a payload; raises ProtocolViolation. Not what JSON has not: NaN, or numbers without end."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise ProtocolViolation("a document that is not JSON") from None


def document(payload: bytes) -> dict[str, Any]:
    """The object in a payload; raises ProtocolViolation."""
    found = parse_value(payload)
    if not isinstance(found, dict):
        raise ProtocolViolation("a document that is not an object")
    return found


def encode_document(value: dict[str, Any]) -> bytes:
    """The payload of an object; raises ValueError if it is too long for one frame."""
    payload = json.dumps(value, separators=(",", ":")).encode()
    if len(payload) > DOCUMENT:
        raise ValueError(f"a document of {len(payload)} bytes is too long for one frame")
    return payload


def encode_credit(size: int) -> bytes:
    """The payload of CREDIT."""
    return _CREDIT.pack(size)


def credit(payload: bytes) -> int:
    """What CREDIT gives; raises ProtocolViolation."""
    if len(payload) != _CREDIT.size:
        raise ProtocolViolation("a credit of the wrong length")
    given: int = _CREDIT.unpack(payload)[0]
    return given


def encode_clocks(asked: float, answered: float = 0.0) -> bytes:
    """The payload of PING and PONG: seconds, of the one who asks and of the one who answers."""
    return _CLOCKS.pack(asked, answered)


def clocks(payload: bytes) -> tuple[float, float]:
    """Both clocks; raises ProtocolViolation for what is no time at all."""
    if len(payload) != _CLOCKS.size:
        raise ProtocolViolation("a heartbeat of the wrong length")
    asked, answered = _CLOCKS.unpack(payload)
    if not (abs(asked) < 1e12 and abs(answered) < 1e12):
        raise ProtocolViolation("a heartbeat whose clock is no time")
    return asked, answered
