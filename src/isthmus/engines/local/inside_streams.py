"""Ports of runs, and commands beside them: what the keeper opened for us inside (`entering.py`), as streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from fcntl import ioctl
from termios import TIOCSWINSZ

import orjson

from isthmus._kit.numbers import whole
from isthmus.engines.base import Stream, TerminalSize
from isthmus.engines.socket_streams import CHUNK, SocketStream
from isthmus.errors import EngineRefused, NotFound, PortClosed, SiteUnavailable

from .entering import CLOSED, NOT_RUNNING, OPEN, REFUSED
from .keeping import Keeper


async def open_port(keeper: Keeper, run_id: str, port: int) -> SocketStream:
    """A connection to a port of a run."""
    answer, found = await keeper.lead(f"connect {run_id} {port}")
    _check(run_id, answer, found, 1)
    return await SocketStream.of(socket.socket(fileno=found[0]))


async def open_command(
    keeper: Keeper, run_id: str, command: Sequence[str], terminal: TerminalSize | None
) -> LocalExecution:
    """A command beside a run."""
    body = orjson.dumps({"command": list(command), "terminal": terminal._asdict() if terminal else None})
    answer, found = await keeper.lead(f"execute {run_id} {len(body)}", body)
    _check(run_id, answer, found, 2 if terminal else 4)
    return await LocalExecution.of(found)


def _check(run_id: str, answer: str, found: list[int], wanted: int) -> None:
    """Raise what the answer stands for."""
    word, _, why = answer.partition(" ")
    if word == OPEN and len(found) == wanted:
        return
    for descriptor in found:
        os.close(descriptor)
    if word == NOT_RUNNING:
        raise NotFound(f"Run {run_id} is not under way: {why}.")
    if word == CLOSED:
        raise PortClosed(why)
    if word == REFUSED:
        raise EngineRefused(f"Run {run_id} cannot be reached: {why}.")
    raise SiteUnavailable(f"Run {run_id} could not be reached: {why or 'the keeper did not answer'}.")


class LocalExecution:
    """A command beside a run, by the pipes or the terminal that it has."""

    def __init__(self, status: asyncio.StreamReader, output: dict[Stream, asyncio.StreamReader]) -> None:
        self._status, self._output = status, output
        self._input: asyncio.WriteTransport | None = None
        self._flow = _Flow()
        self._terminal: int | None = None
        self._reading: list[asyncio.ReadTransport] = []

    @classmethod
    async def of(cls, descriptors: list[int]) -> LocalExecution:
        """By the descriptors that the keeper gave: input, output, errors or a terminal, and where its end is said."""
        *streams, status = descriptors
        transports = []

        async def reader(descriptor: int) -> asyncio.StreamReader:
            found = asyncio.StreamReader(limit=CHUNK)
            pipe = os.fdopen(descriptor, "rb", 0)
            protocol = asyncio.StreamReaderProtocol(found)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
            transports.append(transport)
            return found

        if len(streams) == 1:
            inward, outward = os.dup(streams[0]), {Stream.STDOUT: streams[0]}
        else:
            inward, outward = streams[0], {Stream.STDOUT: streams[1], Stream.STDERR: streams[2]}
        made = cls(await reader(status), {stream: await reader(number) for stream, number in outward.items()})
        made._reading = transports
        made._terminal = streams[0] if len(streams) == 1 else None
        pipe = os.fdopen(inward, "wb", 0)
        made._input, _ = await asyncio.get_running_loop().connect_write_pipe(lambda: made._flow, pipe)
        return made

    async def write(self, data: bytes) -> None:
        """To its standard input."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(data)
            await self._flow.room()

    async def finish(self) -> None:
        """Its standard input ends; of a terminal that is what Ctrl-D says."""
        if self._input is None or self._input.is_closing():
            return
        if self._terminal is not None:
            self._input.write(b"\x04")
        else:
            self._input.close()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it prints, as it comes."""
        waiting = {asyncio.ensure_future(_read(reader)): stream for stream, reader in self._output.items()}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    stream = waiting.pop(task)
                    if data := task.result():
                        yield stream, data
                        waiting[asyncio.ensure_future(_read(self._output[stream]))] = stream
        finally:
            for task in waiting:
                task.cancel()

    async def resize(self, size: TerminalSize) -> None:
        """Its terminal was made larger or smaller."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                ioctl(self._terminal, TIOCSWINSZ, struct.pack("HHHH", size.rows & 0xFFFF, size.columns & 0xFFFF, 0, 0))

    async def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        said = (await self._status.read(64)).strip()
        code = whole(said.removeprefix(b"-"))
        if code is None:
            raise SiteUnavailable("How the command ended is not known: what started it is gone.")
        return -code if said.startswith(b"-") else code

    async def close(self) -> None:
        """Let go; whoever started it sees that nobody listens, and ends it."""
        if self._input is not None and not self._input.is_closing():
            self._input.abort()
        for transport in self._reading:
            transport.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except OSError:  # a terminal that nobody holds any more
        return b""


class _Flow(asyncio.BaseProtocol):
    """Says when a pipe takes more."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()

    def pause_writing(self) -> None:
        """It is full."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It takes more."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody reads it any more."""
        self._room.set()

    async def room(self) -> None:
        """Wait until it takes more."""
        await self._room.wait()
