"""A connection in use: its reader, its writer, its heartbeat, and the calls on its streams.

`Link` moves frames between a channel (a WebSocket, on either side) and the streams of a `Multiplexer`. It is dead
when the channel ends, when the other side breaks the rules, or when nothing was heard for `SILENCE` seconds
although it was asked; then every stream ends with `LinkLost`, and what became of the calls is not known.

`AgentCall` is one stream seen from either end: `send` waits for the other side to read, `receive` gives what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from isthmus.errors import SiteUnavailable

from .frames import ProtocolViolation, stream_of
from .multiplexing import (
    DataReceived,
    Event,
    FailedStream,
    Finished,
    Greeting,
    Heard,
    Multiplexer,
    Opened,
    Writable,
)

HEARTBEAT = 3.0
"""Seconds between two questions whether the other side is there."""
SILENCE = 10.0
"""Seconds after which a side that says nothing counts as gone."""
WRITE_SECONDS = 30.0
"""Seconds in which one message must leave: who does not read, while it speaks, is gone too."""
AHEAD = 256 * 1024
"""Bytes that a stream may have waiting to be sent before whoever writes waits."""


class LinkLost(SiteUnavailable):
    """The connection ended: what became of the call is not known."""


class CallFailed(Exception):
    """The other side gave the call up, and says why."""

    def __init__(self, reason: dict[str, Any]) -> None:
        super().__init__(str(reason.get("message", "no reason given"))[:1000])
        self.reason = reason


class Channel(Protocol):
    """Whole messages, in order."""

    async def send(self, message: bytes) -> None:
        """Hand one over; waits while the other side does not read. Raises LinkLost."""
        ...

    async def receive(self) -> bytes:
        """The next one; raises LinkLost at the end."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class AgentCall:
    """One stream."""

    def __init__(self, link: Link, stream: int, head: dict[str, Any]) -> None:
        self._link, self.stream, self.head = link, stream, head
        self._arrived: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None

    async def send(self, data: bytes) -> None:
        """Send; waits while too much is waiting already. Raises what `receive` raises."""
        while self._link.waiting(self.stream) > AHEAD:
            await self._wait()
        self._check()
        self._link.write(self.stream, data)

    def finish(self, result: dict[str, Any] | None = None) -> None:
        """Everything was sent."""
        self._link.finish(self.stream, result)

    def fail(self, reason: dict[str, Any]) -> None:
        """Give it up."""
        self._link.fail(self.stream, reason)

    async def receive(self) -> bytes:
        """The next piece; empty at the end. Raises LinkLost, CallFailed."""
        while not self._arrived:
            self._check()
            if self._result is not None:
                return b""
            await self._wait()
        data = self._arrived.popleft()
        self._link.consumed(self.stream, len(data))
        return data

    async def read(self, limit: int) -> bytes:
        """Everything, up to so many bytes; raises ProtocolViolation beyond."""
        parts, size = [], 0
        while data := await self.receive():
            size += len(data)
            if size > limit:
                raise ProtocolViolation(f"more than {limit} bytes")
            parts.append(data)
        return b"".join(parts)

    @property
    def result(self) -> dict[str, Any]:
        """What the other side ended with; after `receive` gave its end."""
        return self._result or {}

    def take(self, event: Event | Exception) -> None:
        """Something came for this stream."""
        if isinstance(event, DataReceived):
            self._arrived.append(event.data)
        elif isinstance(event, Finished):
            self._result = event.result
        elif isinstance(event, FailedStream):
            self._error = CallFailed(event.reason)
        elif isinstance(event, Exception):
            self._error = event
        self._changed.set()

    def wake(self) -> None:
        """Something was sent."""
        self._changed.set()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._check()
        self._changed.clear()
        await self._changed.wait()


Serve = Callable[[AgentCall], Awaitable[None]]


class Link:
    """One connection. `run` lives as long as it does, and ends what handles calls of the other side."""

    def __init__(self, channel: Channel, *, opens: bool, serve: Serve | None = None) -> None:
        """`serve` handles a call of the other side; each in a task of its own."""
        self._channel, self._serve = channel, serve
        self._mux = Multiplexer(opens=opens)
        self._calls: dict[int, AgentCall] = {}
        self._outgoing = asyncio.Event()
        self._greetings: asyncio.Queue[Greeting] = asyncio.Queue(4)
        self._handlers: dict[int, asyncio.Task[None]] = {}
        self._lost: LinkLost | None = None
        self._cut = asyncio.Event()
        self.heard_at = time.monotonic()
        """When the other side was last heard, by the monotonic clock."""
        self.round_trip: float | None = None
        """Seconds, of the last heartbeat."""
        self.clock_offset: float | None = None
        """Seconds that the other side's clock is ahead of ours, about."""
        self._clock_error = float("inf")

    @property
    def alive(self) -> bool:
        """Whether it was not found to be dead."""
        return self._lost is None

    async def run(self) -> None:
        """Move frames until the end of the connection; raises LinkLost with the reason."""
        tasks = [
            asyncio.create_task(work, name=f"link {name}")
            for name, work in (
                ("reader", self._read()),
                ("writer", self._write()),
                ("heartbeat", self._beat()),
                ("cut", self._cut.wait()),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            found = next((task.exception() for task in tasks if task.done() and not task.cancelled()), None)
            self._end(found if isinstance(found, Exception) else LinkLost("The connection ended."))
        finally:
            self._end(LinkLost("The connection was closed."))
            for task in (*tasks, *self._handlers.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._handlers.values(), return_exceptions=True)
            with contextlib.suppress(Exception):
                await self._channel.close()
        assert self._lost is not None
        raise self._lost

    def cut(self, why: str) -> None:
        """End it now, for this reason."""
        self._end(LinkLost(why))
        self._cut.set()

    # Greetings

    def greet(self, content: dict[str, Any], *, refused: bool = False) -> None:
        """Say something of the connection itself."""
        self._mux.greet(content, refused=refused)
        self._outgoing.set()

    async def greeting(self, seconds: float) -> dict[str, Any]:
        """What the other side says of the connection; raises CallFailed if it refuses, LinkLost."""
        try:
            async with asyncio.timeout(seconds):
                got = await self._greetings.get()
        except TimeoutError:
            raise LinkLost("The other side did not introduce itself in time.") from None
        if got.refused:
            raise CallFailed(got.content)
        return got.content

    async def flush(self) -> None:
        """Send everything that waits, while no writer runs or before the end."""
        while (message := self._mux.next()) is not None:
            await self._channel.send(message)

    # Calls

    @contextlib.asynccontextmanager
    async def call(self, head: dict[str, Any]) -> AsyncIterator[AgentCall]:
        """Call the other side; whatever is not over at the end of the block is given up."""
        if self._lost is not None:
            raise self._lost
        try:
            call = AgentCall(self, self._mux.open(head), head)
        except OverflowError as error:
            raise SiteUnavailable(f"Too much is asked of the agent at once: {error}.") from None
        self._calls[call.stream] = call
        self._outgoing.set()
        try:
            yield call
        finally:
            self._calls.pop(call.stream, None)
            self.fail(call.stream, {"code": "Cancelled", "message": "nobody waits for it any more"})

    async def ping(self, seconds: float) -> bool:
        """Whether the other side answers within so many seconds."""
        asked = time.monotonic()
        self._mux.ping(time.monotonic())
        self._outgoing.set()
        while self.alive and time.monotonic() - asked < seconds:
            if self.heard_at > asked:
                return True
            await asyncio.sleep(0.05)
        return False

    def waiting(self, stream: int) -> int:
        """Bytes of a stream that were not sent yet."""
        return self._mux.waiting(stream)

    def write(self, stream: int, data: bytes) -> None:
        """Send on a stream."""
        self._mux.write(stream, data)
        self._outgoing.set()

    def finish(self, stream: int, result: dict[str, Any] | None) -> None:
        """Everything was sent on a stream."""
        self._mux.finish(stream, result)
        self._outgoing.set()

    def fail(self, stream: int, reason: dict[str, Any]) -> None:
        """Give a stream up."""
        self._mux.fail(stream, reason)
        self._outgoing.set()

    def consumed(self, stream: int, size: int) -> None:
        """Bytes of a stream were used."""
        self._mux.consumed(stream, size)
        self._outgoing.set()

    # The three tasks

    async def _read(self) -> None:
        while True:
            message = await self._channel.receive()
            self.heard_at = time.monotonic()
            try:
                event = self._mux.receive(message, time.time())
                if event is not None:
                    self._handle(event)
            except ProtocolViolation as error:
                raise LinkLost(f"The other side broke the protocol: {error}.") from None
            self._outgoing.set()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Greeting):
            if self._greetings.full():
                raise ProtocolViolation("too many greetings")
            self._greetings.put_nowait(event)
        elif isinstance(event, Heard):
            self._note(event)
        elif isinstance(event, Opened):
            self._begin(event)
        elif (call := self._calls.get(event.stream)) is not None:
            call.wake() if isinstance(event, Writable) else call.take(event)
            if isinstance(event, FailedStream) and (task := self._handlers.get(event.stream)) is not None:
                task.cancel()

    def _note(self, event: Heard) -> None:
        took = time.monotonic() - event.asked
        if not 0 <= took < SILENCE * 2:
            return
        self.round_trip = took
        # The quickest answer says most exactly what the other clock shows; older ones count less and less.
        if took / 2 <= self._clock_error:
            self._clock_error = took / 2
            self.clock_offset = event.answered - (time.time() - took / 2)
        self._clock_error += 0.001

    def _begin(self, event: Opened) -> None:
        if self._serve is None:
            raise ProtocolViolation("a call that nobody answers")
        call = self._calls[event.stream] = AgentCall(self, event.stream, event.head)
        task = asyncio.create_task(self._handled(call), name="agent call")
        self._handlers[event.stream] = task
        task.add_done_callback(lambda _: self._handlers.pop(event.stream, None))

    async def _handled(self, call: AgentCall) -> None:
        assert self._serve is not None
        try:
            await self._serve(call)
        finally:
            self._calls.pop(call.stream, None)

    async def _write(self) -> None:
        while True:
            self._outgoing.clear()
            if self._lost is not None:
                raise self._lost
            message = self._mux.next()
            if message is None:
                await self._outgoing.wait()
                continue
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._channel.send(message)
            except TimeoutError:
                raise LinkLost(f"The other side read nothing for {WRITE_SECONDS:g} s.") from None
            if (call := self._calls.get(stream_of(message))) is not None:
                call.wake()

    async def _beat(self) -> None:
        while True:
            self._mux.ping(time.monotonic())
            self._outgoing.set()
            await asyncio.sleep(HEARTBEAT)
            if (silent := time.monotonic() - self.heard_at) > SILENCE:
                raise LinkLost(f"Nothing was heard for {silent:.0f} s.")

    def _end(self, error: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = error if isinstance(error, LinkLost) else LinkLost(f"The connection ended: {error}.")
        for call in list(self._calls.values()):
            call.take(self._lost)


def encode_body(value: object) -> bytes:
    """JSON, as data of a stream."""
    return json.dumps(value, separators=(",", ":")).encode()
