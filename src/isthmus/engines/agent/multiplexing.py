"""Many streams over one connection, as a state without I/O. Pure.

One side opens streams, and the other answers on them: the control plane calls, an agent never does. Each direction
of a stream has a credit of its own, which its reader renews as it reads, so that a long file waits for whoever
reads it and for nobody else. What is to be sent leaves in this order: control messages first, then data, one piece
of each stream in turn. The end of a stream follows its last data.

Whatever breaks the rules raises `ProtocolViolation`, after which the connection is of no more use. Frames of a
stream that has just ended are on their way rightly, and are dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .frames import (
    LAST_STREAM,
    PIECE,
    Frame,
    FrameKind,
    ProtocolViolation,
    clocks,
    credit,
    document,
    encode_clocks,
    encode_credit,
    encode_document,
    parse_frame,
)

WINDOW = 1024 * 1024
"""Bytes that may be on their way in one direction of a stream. A megabyte keeps a link of 100 Mbit/s and 80 ms busy."""
MOST_STREAMS = 4096
"""At a time, over one connection."""


class Opened(NamedTuple):
    """The other side calls."""

    stream: int
    head: dict[str, Any]


class DataReceived(NamedTuple):
    """Part of what a stream carries. Once it is used, `consumed` renews the credit."""

    stream: int
    data: bytes


class Finished(NamedTuple):
    """The other side has sent everything on a stream."""

    stream: int
    result: dict[str, Any]


class FailedStream(NamedTuple):
    """The other side gives a stream up."""

    stream: int
    reason: dict[str, Any]


class Heard(NamedTuple):
    """An answer to a heartbeat."""

    asked: float
    answered: float


class Greeting(NamedTuple):
    """What is said of the connection itself; refused: that it is over."""

    content: dict[str, Any]
    refused: bool = False


class Writable(NamedTuple):
    """A stream has credit again."""

    stream: int


Event = Opened | DataReceived | Finished | FailedStream | Heard | Greeting | Writable


@dataclass(slots=True)
class _OpenStream:
    may_send: int = WINDOW
    may_receive: int = WINDOW
    unreported: int = 0
    """Bytes that were used, and for which no credit was given yet."""
    queue: deque[memoryview] = field(default_factory=deque)
    queued: int = 0
    in_turn: bool = False
    end: bytes | None = None
    sent: bool = False
    received: bool = False


class Multiplexer:
    """The streams of one side of a connection."""

    def __init__(self, *, opens: bool) -> None:
        """`opens`: whether this side calls, or answers."""
        self._opens = opens
        self._streams: dict[int, _OpenStream] = {}
        self._last = 0
        self._control: deque[bytes] = deque()
        self._turns: deque[int] = deque()

    @property
    def streams(self) -> int:
        """How many there are now."""
        return len(self._streams)

    # What this side does

    def greet(self, content: dict[str, Any], *, refused: bool = False) -> None:
        """Say something of the connection itself."""
        kind = FrameKind.FAIL if refused else FrameKind.HELLO
        self._put(kind, 0, encode_document(content))

    def open(self, head: dict[str, Any]) -> int:
        """Call: the stream of it. Raises ValueError for a head that is too long, OverflowError for too many at once."""
        assert self._opens, "only the side that calls opens streams"
        if len(self._streams) >= MOST_STREAMS or self._last == LAST_STREAM:
            raise OverflowError(f"there are {len(self._streams)} streams already")
        payload = encode_document(head)
        self._last += 1
        self._streams[self._last] = _OpenStream()
        self._put(FrameKind.OPEN, self._last, payload)
        return self._last

    def write(self, stream: int, data: bytes) -> None:
        """Send, as the credit allows; without effect on a stream that is over."""
        known = self._streams.get(stream)
        if known is None or known.end is not None or not data:
            return
        known.queue.append(memoryview(data))
        known.queued += len(data)
        self._turn(stream, known)

    def waiting(self, stream: int) -> int:
        """Bytes of a stream that were not yet sent."""
        known = self._streams.get(stream)
        return known.queued if known else 0

    def finish(self, stream: int, result: dict[str, Any] | None = None) -> None:
        """Everything has been written."""
        known = self._streams.get(stream)
        if known is None or known.end is not None:
            return
        known.end = encode_document(result or {})
        self._end_if_sent(stream, known)

    def fail(self, stream: int, reason: dict[str, Any]) -> None:
        """Give a stream up, both ways; without effect on one that is over."""
        if self._streams.pop(stream, None) is not None:
            self._put(FrameKind.FAIL, stream, encode_document(reason))

    def consumed(self, stream: int, size: int) -> None:
        """So many bytes were used: others may come."""
        known = self._streams.get(stream)
        if known is None or known.received:
            return
        known.unreported += size
        if known.unreported >= WINDOW // 4:
            known.may_receive += known.unreported
            self._put(FrameKind.CREDIT, stream, encode_credit(known.unreported))
            known.unreported = 0

    def ping(self, clock: float) -> None:
        """Ask whether the other side is there."""
        self._put(FrameKind.PING, 0, encode_clocks(clock))

    def next(self) -> bytes | None:
        """What is to be sent next; None: nothing, for now."""
        if self._control:
            return self._control.popleft()
        while self._turns:
            stream = self._turns.popleft()
            known = self._streams.get(stream)
            if known is None:
                continue
            known.in_turn = False
            if not known.queue or known.may_send <= 0:
                continue
            piece = self._piece(known)
            if known.queue:
                self._turn(stream, known)
            self._end_if_sent(stream, known)
            return Frame(FrameKind.DATA, stream, piece).encode()
        return None

    # What the other side does

    def receive(self, message: bytes, clock: float) -> Event | None:
        """What a message means, at this time of our clock; None: nothing that anybody need know."""
        kind, stream, payload = parse_frame(message)
        if kind in (FrameKind.HELLO, FrameKind.PING, FrameKind.PONG):
            return self._of_connection(kind, stream, payload, clock)
        if stream == 0:
            if kind is not FrameKind.FAIL:
                raise ProtocolViolation(f"{kind.name} for no stream")
            return Greeting(document(payload), refused=True)
        if kind is FrameKind.OPEN:
            return self._opened(stream, payload)
        known = self._streams.get(stream)
        if known is None:
            if stream > self._last:
                raise ProtocolViolation(f"{kind.name} for stream {stream}, which was never opened")
            return None
        if kind is FrameKind.CREDIT:
            return self._credited(stream, known, credit(payload))
        if kind is FrameKind.FAIL:
            reason = document(payload)
            del self._streams[stream]
            return FailedStream(stream, reason)
        if known.received:
            raise ProtocolViolation(f"{kind.name} for stream {stream} after its end")
        if kind is FrameKind.DATA:
            known.may_receive -= len(payload)
            if known.may_receive < 0 or len(payload) > PIECE:
                raise ProtocolViolation(f"more data for stream {stream} than was asked for")
            return DataReceived(stream, payload)
        result = document(payload)
        known.received = True
        self._drop_if_over(stream, known)
        return Finished(stream, result)

    def _of_connection(self, kind: FrameKind, stream: int, payload: bytes, clock: float) -> Event | None:
        if stream != 0:
            raise ProtocolViolation(f"{kind.name} for stream {stream}")
        if kind is FrameKind.HELLO:
            return Greeting(document(payload))
        asked, answered = clocks(payload)
        if kind is FrameKind.PONG:
            return Heard(asked, answered)
        if len(self._control) < MOST_STREAMS:  # who asks without reading the answers gets none
            self._put(FrameKind.PONG, 0, encode_clocks(asked, clock))
        return None

    def _opened(self, stream: int, payload: bytes) -> Event:
        if self._opens:
            raise ProtocolViolation("a call from the side that answers")
        if stream != self._last + 1:
            raise ProtocolViolation(f"stream {stream} after stream {self._last}")
        if len(self._streams) >= MOST_STREAMS:
            raise ProtocolViolation("too many streams at once")
        self._last = stream
        self._streams[stream] = _OpenStream()
        return Opened(stream, document(payload))

    def _credited(self, stream: int, known: _OpenStream, more: int) -> Event | None:
        known.may_send += more
        if known.may_send > WINDOW:
            raise ProtocolViolation(f"more credit for stream {stream} than was used")
        self._turn(stream, known)
        return Writable(stream)

    # How it is done

    def _put(self, kind: FrameKind, stream: int, payload: bytes) -> None:
        self._control.append(Frame(kind, stream, payload).encode())

    def _turn(self, stream: int, known: _OpenStream) -> None:
        if known.queue and known.may_send > 0 and not known.in_turn:
            known.in_turn = True
            self._turns.append(stream)

    def _piece(self, known: _OpenStream) -> bytes:
        room = min(PIECE, known.may_send)
        first = known.queue.popleft()
        piece, rest = first[:room], first[room:]
        if rest:
            known.queue.appendleft(rest)
        known.queued -= len(piece)
        known.may_send -= len(piece)
        return bytes(piece)

    def _end_if_sent(self, stream: int, known: _OpenStream) -> None:
        if known.end is None or known.queue or known.sent:
            return
        known.sent = True
        self._drop_if_over(stream, known)
        self._put(FrameKind.END, stream, known.end)

    def _drop_if_over(self, stream: int, known: _OpenStream) -> None:
        if known.sent and known.received:
            del self._streams[stream]
