"""Ways into a job that runs, each a WebSocket: bytes to and from one of its ports, or a command beside it.

Only who created the job gets in, whatever roles others have. A connection ends with the token that opened it.

- `…/jobs/NAME/portforward?port=8888`: binary messages are bytes of the stream, both ways. An empty message says that
  nothing more will be sent.
- `…/jobs/NAME/exec?command=ls&command=-l`: the first byte of a message names a channel, with the numbers that
  Kubernetes has for them: 0 standard input (empty: it ends), 1 standard output, 2 standard error, 3 how it ended, as
  JSON, 4 the size of the terminal, as JSON. With `rows` and `columns` the command has a terminal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from isthmus.api.auditing import note_connection
from isthmus.api.requests import authenticated, authorization_of, forbidden, require
from isthmus.api.responses import error_response, status_of
from isthmus.engines.base import Execution, PortStream, Stream, TerminalSize
from isthmus.errors import EngineRefused, Invalid, IsthmusError, NotFound, Unavailable, invalid_field
from isthmus.identity.callers import Caller, at_least
from isthmus.resources.frame.roles import Role
from isthmus.resources.jobs import MAX_WORDS, Job
from isthmus.resources.kinds import JOB
from isthmus.store.base import Key

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from isthmus.api.context import Context, RunVisits

_PATH = re.compile(r"/apis/isthmus\.dev/v1/namespaces/([^/]{1,253})/jobs/([^/]{1,253})/(portforward|exec)")
STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
_LARGEST_TERMINAL = 10_000
_CHANNELS = {Stream.STDOUT: bytes([STDOUT]), Stream.STDERR: bytes([STDERR])}


def socket(context: Context, path: str) -> ASGIApp | None:
    """What serves a WebSocket at this path."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    namespace, name, part = found.groups()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        try:
            caller = await authenticated(scope, context)
            job = await find_own(context, caller, namespace, name, part)
            if context.visits is None:
                raise NotFound("running jobs cannot be reached here")
            begin = _forward if part == "portforward" else _execute
            relay = await begin(context.visits, job, websocket)
        except IsthmusError as error:
            note_connection(context, scope, status_of(error)["code"])
            await _deny(websocket, error)
            return
        note_connection(context, scope, 101)
        await websocket.accept()
        await _while_allowed(context, caller, scope, relay)

    return serve


async def find_own(context: Context, caller: Caller, namespace: str, name: str, part: str) -> Job:
    """The caller's own job; raises Forbidden, before anything is looked up where the role is not enough, NotFound."""
    require(caller, "create", JOB.plural, namespace)
    record = await context.store.get(Key(JOB.name, namespace, name))
    job = Job.model_validate(record.obj)
    status = job.status
    unknown = status.member is None and status.submitted_by is None  # the store does not say who created it
    if caller.is_owner(status.member, status.submitted_by) or (
        unknown and at_least(caller.role_in(namespace), Role.ADMIN)
    ):
        return job
    raise forbidden(caller, "create", JOB.plural, namespace, name, part)


async def _deny(websocket: WebSocket, error: IsthmusError) -> None:
    """Refuse in the form of every other answer."""
    await websocket.receive()
    if "websocket.http.response" in (websocket.scope.get("extensions") or {}):
        await websocket.send_denial_response(error_response(error))
    else:
        await websocket.close(1008)


async def _while_allowed(context: Context, caller: Caller, scope: Scope, relay: Callable[[], Awaitable[None]]) -> None:
    """Relay until it is over, the token ends or gets other rights, or the server stops."""
    task = asyncio.ensure_future(relay())
    header = authorization_of(scope)

    def end() -> None:
        task.cancel()

    with context.lifelines.hold(end), context.authenticator.following(header, caller, end):
        await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _forward(visits: RunVisits, job: Job, websocket: WebSocket) -> Callable[[], Awaitable[None]]:
    port = _number(websocket, "port", 1, 65535)
    if port is None:
        raise invalid_field("port", "is missing; say which port of the job, such as port=8888")
    stream = await visits.connect(job, port)

    async def relay() -> None:
        try:
            await _both(_inward(websocket, stream), _outward(stream, websocket))
        finally:
            await stream.close()

    return relay


async def _inward(websocket: WebSocket, stream: PortStream) -> None:
    while (message := await _message(websocket)) is not None:
        if message:
            await stream.send(message)
        else:
            await stream.finish()


async def _outward(stream: PortStream, websocket: WebSocket) -> None:
    while data := await stream.receive():
        await websocket.send_bytes(data)
    await websocket.send_bytes(b"")
    await websocket.close()


async def _both(inward: Awaitable[None], outward: Awaitable[None]) -> None:
    """Both directions, until the client has left or all that comes was sent."""
    tasks = [asyncio.ensure_future(inward), asyncio.ensure_future(outward)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            error = task.exception() if task.done() else None
            if error is not None and not isinstance(error, OSError | WebSocketDisconnect | RuntimeError):
                raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _execute(visits: RunVisits, job: Job, websocket: WebSocket) -> Callable[[], Awaitable[None]]:
    command = websocket.query_params.getlist("command")
    if not command or not command[0] or len(command) > MAX_WORDS or any("\0" in word for word in command):
        raise invalid_field("command", "must be a program and its arguments, a parameter for each word")
    rows, columns = (_number(websocket, name, 1, _LARGEST_TERMINAL) for name in ("rows", "columns"))
    if (rows is None) != (columns is None):
        raise Invalid("rows and columns belong together; give both, or none for a command without a terminal")
    terminal = TerminalSize(rows, columns) if rows and columns else None
    execution = await visits.execute(job, command, terminal)

    async def relay() -> None:
        try:
            await _both(_typed(websocket, execution), _printed(execution, websocket))
        finally:
            await execution.close()

    return relay


async def _typed(websocket: WebSocket, execution: Execution) -> None:
    while (message := await _message(websocket)) is not None:
        channel, data = message[:1], message[1:]
        if channel == bytes([STDIN]):
            await (execution.write(data) if data else execution.finish())
        elif channel == bytes([RESIZE]) and (size := _size(data)) is not None:
            await execution.resize(size)


async def _printed(execution: Execution, websocket: WebSocket) -> None:
    async for stream, data in execution.output():
        await websocket.send_bytes(_CHANNELS[stream] + data)
    try:
        end: dict[str, Any] = {"code": await execution.wait()}
    except (Unavailable, EngineRefused) as error:
        end = {"message": error.message}
    await websocket.send_bytes(bytes([STATUS]) + orjson.dumps(end))
    await websocket.close()


def _size(data: bytes) -> TerminalSize | None:
    try:
        said = orjson.loads(data)
        size = TerminalSize(said["rows"], said["columns"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    fits = all(type(number) is int and 0 < number <= _LARGEST_TERMINAL for number in size)
    return size if fits else None


async def _message(websocket: WebSocket) -> bytes | None:
    """The next message; None: the client has left."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    return message.get("bytes") or (message.get("text") or "").encode()


def _number(websocket: WebSocket, name: str, least: int, most: int) -> int | None:
    text = websocket.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise invalid_field(name, f"must be a number from {least} to {most}")
    return int(text)
