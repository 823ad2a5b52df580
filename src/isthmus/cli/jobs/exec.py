"""`isthmus exec`: a command beside a running job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.failures import write_all
from isthmus.cli.options import JobName, Namespace, Token, Url, client_for
from isthmus.client.kubeconfigs import Access
from isthmus.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_STDIN, _STDOUT, _STDERR, _STATUS = range(4)


def exec_(
    name: JobName,
    words: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND…", help="Program and arguments.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Send standard input to the command.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal, and send what is typed.")] = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run a command beside a running job of yours: in its folder and sandbox, as its account, within its limits.

    Answers the command's exit code; 128 and the number of the signal that ended it. The command ends with the job.

    \b
    Examples:
      isthmus exec train-x7k2p -- nvidia-smi
      isthmus exec -t train-x7k2p -- bash
      tar c data | isthmus exec -i train-x7k2p -- tar x
    """
    command = list(words or ())
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        raise Invalid(f"say what to run: isthmus exec {name} -- ls -l")
    if tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("-t needs a terminal here; leave it out, or use -i to send standard input")
    with client_for(url, token, namespace) as client:
        client.job(name)  # a name that is wrong is explained
        access, tenant = client.access, namespace or client.namespace()
    raise typer.Exit(asyncio.run(_execute(access, tenant, name, command, stdin=stdin, tty=tty)))


async def _execute(access: Access, tenant: str, job: str, command: list[str], *, stdin: bool, tty: bool) -> int:
    from isthmus.client.job_sockets import open_visit

    query = [("command", word) for word in command]
    if tty:
        columns, rows = shutil.get_terminal_size()
        query += [("rows", str(rows)), ("columns", str(columns))]
    connection = await open_visit(access, tenant, job, "exec", query)
    with _raw() if tty else contextlib.nullcontext():
        async with connection:
            sending = asyncio.create_task(_send(connection, stdin=stdin or tty))
            if tty:
                _follow_size(connection)
            try:
                return await _print(connection)
            finally:
                sending.cancel()


async def _send(connection: ClientConnection, *, stdin: bool) -> None:
    from isthmus.client.job_sockets import PIECE

    if stdin:
        reader = asyncio.StreamReader(limit=PIECE)
        pipe = os.fdopen(os.dup(0), "rb", 0)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            while data := await reader.read(PIECE):
                await connection.send(bytes([_STDIN]) + data)
        except ValueError:  # a plain file is read in one go
            while data := await asyncio.to_thread(os.read, 0, PIECE):
                await connection.send(bytes([_STDIN]) + data)
    await connection.send(bytes([_STDIN]))


async def _print(connection: ClientConnection) -> int:
    import orjson
    from websockets.exceptions import ConnectionClosed

    try:
        while True:
            message = await connection.recv()
            assert isinstance(message, bytes)
            channel, data = message[0], message[1:]
            if channel in (_STDOUT, _STDERR):
                await asyncio.to_thread(write_all, channel, data)
            elif channel == _STATUS:
                end = orjson.loads(data)
                if "code" not in end:
                    raise Unavailable(str(end.get("message")))
                code = int(end["code"])
                return code if code >= 0 else 128 - code
    except ConnectionClosed:
        raise Unavailable("the connection broke before the command ended; what became of it is not known") from None


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """What is typed goes to the command as it is."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _follow_size(connection: ClientConnection) -> None:
    from isthmus.client.job_sockets import resized

    loop = asyncio.get_running_loop()
    kept: set[asyncio.Task[None]] = set()

    def say() -> None:
        columns, rows = shutil.get_terminal_size()
        task = loop.create_task(connection.send(resized(rows, columns)))
        kept.add(task)
        task.add_done_callback(kept.discard)

    loop.add_signal_handler(signal.SIGWINCH, say)
