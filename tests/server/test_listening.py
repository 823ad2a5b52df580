"""What leaves together."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.server.listening import FEW, SMALL, Joining

pytestmark = pytest.mark.anyio


class Wire(asyncio.Transport):
    """Notes what is sent."""

    def __init__(self) -> None:
        super().__init__({"peername": "somebody"})
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.sent.append(b"<closed>")


async def test_what_is_written_in_one_turn_leaves_together() -> None:
    wire = Wire()
    joined = Joining(wire, asyncio.get_running_loop())
    joined.write(b"head ")
    joined.write(b"body")
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [b"head body"]


async def test_nothing_is_held_back_until_more_comes() -> None:
    wire = Wire()
    joined = Joining(wire, asyncio.get_running_loop())
    joined.write(b"first")
    await asyncio.sleep(0)
    joined.write(b"second")
    await asyncio.sleep(0)
    assert wire.sent == [b"first", b"second"]


async def test_much_goes_at_once_and_in_order() -> None:
    wire = Wire()
    joined = Joining(wire, asyncio.get_running_loop())
    joined.write(b"head")
    joined.write(b"x" * (SMALL + 1))
    assert wire.sent == [b"head", b"x" * (SMALL + 1)]
    for _ in range(FEW):
        joined.write(b"y")
    assert wire.sent[2:] == [b"y" * FEW]


async def test_closing_sends_what_there_is() -> None:
    wire = Wire()
    joined = Joining(wire, asyncio.get_running_loop())
    joined.write(b"last words")
    joined.close()
    await asyncio.sleep(0)
    assert wire.sent == [b"last words", b"<closed>"]


async def test_the_rest_is_the_transports_own() -> None:
    assert Joining(Wire(), asyncio.get_running_loop()).get_extra_info("peername") == "somebody"
