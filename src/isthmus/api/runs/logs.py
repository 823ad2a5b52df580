"""The output of runs: `GET …/jobs/{name}/log`, as plain bytes or as server-sent events; and of whatever has runs.

Without `follow` the answer is what there is now. With it, the answer goes on until the job has ended and all its
bytes were sent. If no attempt was named and the job is tried again meanwhile, the answer goes on with the output
of the next attempt. A follower is a coroutine that waits for two things: that there may be more bytes, or that
the job changed. Memory is one piece per follower, and the next is read when the client took the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isthmus.api.streams import EVENT_STREAM, KEEP_ALIVE, KEEP_ALIVE_SECONDS, StreamedAnswer, TextPieces, event
from isthmus.engines.base import Stream as Output
from isthmus.errors import Invalid, IsthmusError, NotFound, Unavailable
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job
from isthmus.store.base import Record

from .finding import find_run, kinds_with_runs, run_route
from .following import FollowedJob, JobFollowers
from .log_queries import LogQuery

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context, Logs
    from isthmus.resources.kinds import Kind

PIECE = 256 * 2**10
MAX_TAIL = 64 * 2**20
"""Bytes that are searched for the last lines."""
_PAUSE = 1.0


def routes(context: Context) -> list[BaseRoute]:
    """Where logs are served."""
    followers = JobFollowers(context.store)

    async def log(request: Request, kind: Kind) -> Response:
        found = await find_run(context, request, kind, "log")
        caller, wanted = found.caller, LogQuery.of(request)
        log = await _Log.open(context.logs, found.record, found.job, wanted)
        headers = {"Isthmus-Log-Offset": str(log.offset), "Isthmus-Log-Attempt": str(log.attempt)}
        if wanted.events:
            parts = _events(log, followers)
            return StreamedAnswer(context, caller, parts, EVENT_STREAM, headers | {"X-Accel-Buffering": "no"})
        if not wanted.follow:
            headers["Content-Length"] = str(log.left)
        return StreamedAnswer(context, caller, _plain(log, followers), "text/plain", headers, whole=not wanted.follow)

    return [run_route(kind, "log", log) for kind in kinds_with_runs()]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes, and where the next ones are."""

    data: bytes
    attempt: int
    offset: int


@dataclass(slots=True)
class _Log:
    """A log being read: where it is, and how much of it is still wanted."""

    logs: Logs
    record: Record
    job: Job
    output: Output
    follow: bool
    attempt: int
    named: bool
    offset: int
    left: int | None
    gone: bool = False

    @classmethod
    async def open(cls, logs: Logs, record: Record, job: Job, wanted: LogQuery) -> _Log:
        """Check the wishes against the job, and find where to begin."""
        if job.spec.array is not None:
            raise Invalid(
                f"job {job.name} is an array and has no log of its own; ask for an element, such as {job.name}-0, "
                f"as listed by the label selector isthmus.dev/array={job.name[:63]}"
            )
        attempt = job.status.attempt if wanted.attempt is None else wanted.attempt
        if attempt > job.status.attempt:
            raise Invalid(f"job {job.name} has no attempt {attempt}; the latest is {job.status.attempt}")
        size = await logs.size(job, attempt, wanted.output)
        offset = wanted.offset
        if wanted.tail is not None:
            offset = max(offset, await _tail(logs, job, attempt, wanted.output, size, wanted.tail))
        left = wanted.limit
        if not wanted.follow:
            there = max(0, size - offset)
            left = there if left is None else min(left, there)
        return cls(logs, record, job, wanted.output, wanted.follow, attempt, wanted.attempt_fixed, offset, left)

    async def pieces(self, followers: JobFollowers) -> AsyncGenerator[Piece | None, None]:
        """The bytes; None whenever nothing came for a while."""
        if not self.follow:
            while self.left:
                if (piece := await self._next()) is None:
                    raise Unavailable(f"the log of job {self.job.name} became shorter while it was read; ask again")
                yield piece
            return
        async with followers.follow(self.record) as followed:
            idle = 0
            while self.left is None or self.left > 0:
                try:
                    self.job = await followed.now()
                    self.gone = followed.gone
                    # Looked at before the reading: if it was over then, what was read is all there will be.
                    over = self.gone or self.job.status.phase.terminal or self.job.status.attempt > self.attempt
                    piece = await self._next()
                except NotFound:
                    return
                except IsthmusError as error:
                    if not error.transient:
                        raise
                    await asyncio.sleep(_PAUSE)
                    yield None
                    continue
                if piece is not None:
                    idle = 0
                    yield piece
                elif over:
                    if self.named or self.gone or self.job.status.attempt <= self.attempt:
                        return
                    self.attempt, self.offset, idle = self.attempt + 1, 0, 0
                else:
                    if await self._wait(followed, idle):
                        yield None
                    idle += 1

    async def _next(self) -> Piece | None:
        size = PIECE if self.left is None else min(PIECE, self.left)
        data = await self.logs.read(self.job, self.attempt, self.output, self.offset, size)
        if not data:
            size = await self.logs.size(self.job, self.attempt, self.output)
            if size < self.offset:  # it became too long and lost its middle: go on with the latest
                self.offset = max(0, size - PIECE)
            return None
        self.offset += len(data)
        if self.left is not None:
            self.left -= len(data)
        return Piece(data, self.attempt, self.offset)

    async def _wait(self, followed: FollowedJob, idle: int) -> bool:
        """Wait for more bytes or for the job to change; whether it took as long as a keep-alive."""
        waits = [asyncio.ensure_future(followed.changed())]
        if self.job.status.phase is not JobPhase.PENDING:
            waits.append(asyncio.ensure_future(self._grown(idle)))
        try:
            done, _ = await asyncio.wait(waits, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            return not done
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _grown(self, idle: int) -> None:
        try:
            await self.logs.wait(self.job, self.attempt, self.output, self.offset, 2 * KEEP_ALIVE_SECONDS)
        except (NotFound, Unavailable):
            await asyncio.sleep(_PAUSE)
        # Who is notified again and again of bytes that are not there looks less often, and never in a tight loop.
        await asyncio.sleep(min(_PAUSE, 0.005 * 2 ** min(idle, 10)) if idle else 0)


async def _tail(logs: Logs, job: Job, attempt: int, output: Output, end: int, lines: int) -> int:
    """Where the last lines begin. A newline at the very end closes the last line and begins none."""
    position, found = end, 0
    # A job may make its log as long as it likes, with a hole that costs it nothing: the search has an end.
    furthest = max(0, end - MAX_TAIL)
    while position > furthest and lines > 0:
        start = max(furthest, position - PIECE)
        data = bytearray()
        while len(data) < position - start:
            more = await logs.read(job, attempt, output, start + len(data), position - start - len(data))
            if not more:
                raise Unavailable(f"the log of job {job.name} became shorter while it was read; ask again")
            data += more
        at = len(data) - 1 if position == end and data.endswith(b"\n") else len(data)
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            found += 1
            if found == lines:
                return start + at + 1
        position = start
    return furthest if lines else end


async def _plain(log: _Log, followers: JobFollowers) -> AsyncGenerator[bytes, None]:
    async with aclosing(log.pieces(followers)) as pieces:
        async for piece in pieces:
            if piece is not None:
                yield piece.data


async def _events(log: _Log, followers: JobFollowers) -> AsyncGenerator[bytes, None]:
    text = TextPieces()
    last: Piece | None = None
    async with aclosing(log.pieces(followers)) as pieces:
        async for piece in pieces:
            if piece is None:
                yield KEEP_ALIVE
                continue
            if last is not None and piece.attempt != last.attempt and (rest := text.flush()):
                yield event(rest, id_=_id(last))
            last = piece
            if words := text.feed(piece.data):
                yield event(words, id_=_id(replace(piece, offset=piece.offset - text.held)))
    if last is not None and (rest := text.flush()):
        yield event(rest, id_=_id(last))
    yield event(_end(log), "end")


def _id(piece: Piece) -> str:
    return f"{piece.attempt}:{piece.offset}"


def _end(log: _Log) -> dict[str, Any]:
    status = log.job.status
    found = {
        "phase": status.phase.value,
        "reason": status.reason,
        "message": status.message,
        "exitCode": status.exit_code,
        "signal": status.signal,
        "attempt": log.attempt,
        "offset": log.offset,
        "deleted": True if log.gone else None,
    }
    return {key: value for key, value in found.items() if value is not None}
