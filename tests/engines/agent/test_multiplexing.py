"""Many streams over one connection: nothing lost, nothing out of order, nobody starved, no rule broken unnoticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.agent.frames import (
    DOCUMENT,
    LARGEST,
    PIECE,
    Frame,
    FrameKind,
    ProtocolViolation,
    encode_credit,
    parse_frame,
)
from isthmus.engines.agent.multiplexing import (
    MOST_STREAMS,
    WINDOW,
    DataReceived,
    FailedStream,
    Finished,
    Greeting,
    Heard,
    Multiplexer,
    Opened,
)


class Pair:
    """Two sides, and everything that each of them saw."""

    def __init__(self) -> None:
        self.caller, self.callee = Multiplexer(opens=True), Multiplexer(opens=False)
        self.seen: dict[Multiplexer, dict[int, bytes]] = {self.caller: {}, self.callee: {}}
        self.ended: dict[Multiplexer, dict[int, object]] = {self.caller: {}, self.callee: {}}

    def move(self, most: int = 1_000_000, *, reads: bool = True) -> int:
        """Let messages pass, one from each side in turn; how many."""
        moved = 0
        while moved < most:
            before = moved
            for one, other in ((self.caller, self.callee), (self.callee, self.caller)):
                if (message := one.next()) is not None:
                    moved += 1
                    self._take(other, message, reads)
            if moved == before:
                break
        return moved

    def _take(self, side: Multiplexer, message: bytes, reads: bool) -> None:
        assert len(message) <= LARGEST
        event = side.receive(message, 0.0)
        if isinstance(event, DataReceived):
            assert event.stream not in self.ended[side], "data after the end"
            self.seen[side][event.stream] = self.seen[side].get(event.stream, b"") + event.data
            if reads:
                side.consumed(event.stream, len(event.data))
        elif isinstance(event, Finished):
            self.ended[side][event.stream] = event.result
        elif isinstance(event, FailedStream):
            self.ended[side][event.stream] = event.reason


sizes = st.lists(st.integers(0, 3 * WINDOW), max_size=4)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=5), st.lists(st.integers(1, 60), max_size=10))
def test_everything_arrives_in_order_on_every_stream(
    streams: list[tuple[list[int], list[int]]], steps: list[int]
) -> None:
    pair = Pair()
    sent: dict[int, tuple[bytes, bytes]] = {}
    for there, back in streams:
        stream = pair.caller.open({"call": "x"})
        up = b"".join(bytes([stream, i]) * (size // 2) for i, size in enumerate(there))
        down = b"".join(bytes([100 + stream, i]) * (size // 2) for i, size in enumerate(back))
        pair.caller.write(stream, up)
        pair.caller.finish(stream, {"n": stream})
        for step in steps:
            pair.move(step)
        pair.move()
        pair.callee.write(stream, down)
        pair.callee.finish(stream, {"m": stream})
        sent[stream] = (up, down)
    pair.move()
    for stream, (up, down) in sent.items():
        assert pair.seen[pair.callee].get(stream, b"") == up
        assert pair.seen[pair.caller].get(stream, b"") == down
        assert pair.ended[pair.callee][stream] == {"n": stream}
        assert pair.ended[pair.caller][stream] == {"m": stream}
    assert pair.caller.streams == pair.callee.streams == 0


def test_a_stream_that_nobody_reads_holds_nobody_else_up() -> None:
    pair = Pair()
    slow, quick = pair.caller.open({}), pair.caller.open({})
    pair.caller.write(slow, b"s" * 10 * WINDOW)
    pair.move(reads=False)
    assert len(pair.seen[pair.callee][slow]) == WINDOW
    pair.caller.write(quick, b"q" * 1000)
    pair.caller.finish(quick)
    pair.move(reads=False)
    assert pair.seen[pair.callee][quick] == b"q" * 1000
    assert len(pair.seen[pair.callee][slow]) == WINDOW
    pair.callee.consumed(slow, WINDOW)
    pair.move()
    assert len(pair.seen[pair.callee][slow]) > WINDOW


def test_a_call_overtakes_data_and_streams_take_turns() -> None:
    caller = Multiplexer(opens=True)
    first, second = caller.open({}), caller.open({})
    caller.write(first, b"a" * WINDOW)
    caller.write(second, b"b" * WINDOW)
    kinds = [parse_frame(message) for message in iter(caller.next, None)]
    assert [frame.kind for frame in kinds[:2]] == [FrameKind.OPEN, FrameKind.OPEN]
    assert [frame.stream for frame in kinds[2:6]] == [first, second, first, second]
    caller = Multiplexer(opens=True)
    stream = caller.open({})
    caller.write(stream, b"a" * WINDOW)
    for _ in range(3):
        caller.next()
    cancel = caller.open({"call": "cancel"})
    caller.fail(stream, {"code": "Cancelled"})
    assert [parse_frame(m)[:2] for m in iter(caller.next, None)] == [(FrameKind.OPEN, cancel), (FrameKind.FAIL, stream)]


@pytest.mark.parametrize(
    ("opens", "frames", "why"),
    [
        (True, [(FrameKind.OPEN, 1, b"{}")], "a call from the side that answers"),
        (True, [(FrameKind.DATA, 7, b"x")], "never opened"),
        (False, [(FrameKind.OPEN, 2, b"{}")], "stream 2 after stream 0"),
        (False, [(FrameKind.OPEN, 1, b"[]")], "not an object"),
        (False, [(FrameKind.OPEN, 1, b"{" * 60_000)], "not JSON"),
        (False, [(FrameKind.OPEN, 1, b"[" * 60_000)], "not JSON"),
        (False, [(FrameKind.OPEN, 1, b"{}"), (FrameKind.DATA, 1, b"x" * (PIECE + 1))], "more data"),
        (
            False,
            [(FrameKind.OPEN, 1, b"{}"), *[(FrameKind.DATA, 1, b"x" * PIECE)] * (WINDOW // PIECE + 1)],
            "more data",
        ),
        (False, [(FrameKind.OPEN, 1, b"{}"), (FrameKind.END, 1, b"{}"), (FrameKind.DATA, 1, b"x")], "after its end"),
        (False, [(FrameKind.OPEN, 1, b"{}"), (FrameKind.CREDIT, 1, encode_credit(1))], "more credit"),
        (False, [(FrameKind.OPEN, 1, b"{}"), (FrameKind.CREDIT, 1, b"xx")], "wrong length"),
        (False, [(FrameKind.OPEN, n, b"{}") for n in range(1, MOST_STREAMS + 2)], "too many streams"),
        (False, [(FrameKind.PING, 0, b"xx")], "wrong length"),
        (False, [(FrameKind.PING, 0, b"\x7f\xf0" + b"\0" * 14)], "no time"),
        (False, [(FrameKind.PING, 1, b"\0" * 16)], "for stream 1"),
        (False, [(FrameKind.END, 0, b"{}")], "for no stream"),
    ],
)
def test_who_breaks_the_rules_is_found_out(opens: bool, frames: list[tuple[FrameKind, int, bytes]], why: str) -> None:
    side = Multiplexer(opens=opens)
    *good, last = (Frame(*frame).encode() for frame in frames)
    for message in good:
        side.receive(message, 0.0)
    with pytest.raises(ProtocolViolation, match=why):
        side.receive(last, 0.0)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_do_anything_but_break_the_connection(messages: list[bytes]) -> None:
    for opens in (True, False):
        side = Multiplexer(opens=opens)
        if opens:
            side.open({})
        try:
            for message in messages:
                side.receive(message, 0.0)
        except ProtocolViolation:
            pass
        assert side.streams <= 21


def test_frames_of_a_stream_that_was_given_up_are_dropped() -> None:
    pair = Pair()
    stream = pair.caller.open({})
    pair.move()
    pair.callee.write(stream, b"late")
    pair.callee.finish(stream)
    pair.caller.fail(stream, {"code": "Cancelled"})
    pair.move()
    assert stream not in pair.seen[pair.caller]
    assert pair.caller.streams == pair.callee.streams == 0


def test_greetings_heartbeats_and_refusals() -> None:
    pair = Pair()
    pair.caller.greet({"nonce": "n"})
    message = pair.caller.next()
    assert message is not None
    assert pair.callee.receive(message, 0.0) == Greeting({"nonce": "n"})
    pair.caller.ping(12.5)
    message = pair.caller.next()
    assert message is not None
    assert pair.callee.receive(message, 99.0) is None
    answer = pair.callee.next()
    assert answer is not None
    assert pair.caller.receive(answer, 0.0) == Heard(12.5, 99.0)
    pair.callee.greet({"code": "Unknown"}, refused=True)
    message = pair.callee.next()
    assert message is not None
    assert pair.caller.receive(message, 0.0) == Greeting({"code": "Unknown"}, refused=True)
    with pytest.raises(ValueError, match="too long"):
        pair.caller.open({"long": "x" * DOCUMENT})
    assert json.loads(Frame(FrameKind.HELLO, 0, b"{}").payload) == {}
    stream = pair.caller.open({"call": "x"})
    message = pair.caller.next()
    assert message is not None
    assert pair.callee.receive(message, 0.0) == Opened(stream, {"call": "x"})
