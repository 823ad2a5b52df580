"""Watching: changes as they happen, one JSON line each, or as server-sent events for browsers.

The line of a change is encoded once and shared by all watchers that want whole objects. A stream ends when its
lifeline does, and with an ERROR line when the store says that the reader is too slow or started too far back.

With `Accept: text/event-stream` each change is an event named `added`, `modified` or `deleted`, whose id is the
version: a browser that reconnects sends it as Last-Event-ID and misses nothing. Bookmarks keep the id young and the
connection alive.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

import orjson

from isthmus._kit.clock import utcnow
from isthmus.api.requests import lifeline
from isthmus.api.responses import JSON_HEADER, status_of
from isthmus.api.streams import EVENT_STREAM, KEEP_ALIVE_SECONDS, event
from isthmus.errors import IsthmusError
from isthmus.store.base import Change, EventType, Record

from .calls import Call
from .options import ListOptions, version_in
from .tables import META_V1, Form, partial_metadata, table

BOOKMARK_SECONDS = 30.0
DEFAULT_SECONDS = 1800.0
_PIECE = 256 * 2**10
_NO_STORE = (b"cache-control", b"no-store")
_START = {"type": "http.response.start", "status": 200, "headers": [JSON_HEADER, _NO_STORE]}
_START_EVENTS = {**_START, "headers": [(b"content-type", EVENT_STREAM.encode()), _NO_STORE]}


async def watch(call: Call, options: ListOptions) -> None:
    """Send changes until one side has enough."""
    if EVENT_STREAM.encode() in call.header(b"accept"):
        since = version_in(call.header(b"last-event-id").decode("latin-1")) or options.version or None
        await _send(call, options, since, KEEP_ALIVE_SECONDS, _START_EVENTS, _event_encoder(call), _error_event)
    else:
        bookmarks = BOOKMARK_SECONDS if options.bookmarks else None
        await _send(call, options, options.version or None, bookmarks, _START, _encoder(call, options), _error_line)


async def _send(
    call: Call,
    options: ListOptions,
    since: int | None,
    bookmarks: float | None,
    start: dict[str, Any],
    encode: Callable[[Change], bytes],
    encode_error: Callable[[IsthmusError], bytes],
) -> None:
    # Spread, so that many watchers that began together do not all come back together.
    seconds = options.timeout or DEFAULT_SECONDS * (1 + random.random())  # noqa: S311
    send = call.send
    async with (
        call.context.store.watch(call.query(options), since=since, bookmarks=bookmarks) as changes,
        lifeline(call.scope, call.receive, call.context, call.caller, seconds),
    ):
        # The headers go out at once: clients wait for them before they believe in the watch.
        await send(start)
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            async for change in changes:
                for lines in _joined(map(encode, [change, *changes.ready()])):
                    await send({"type": "http.response.body", "body": lines, "more_body": True})
        except IsthmusError as error:
            await send({"type": "http.response.body", "body": encode_error(error), "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _error_line(error: IsthmusError) -> bytes:
    return orjson.dumps({"type": "ERROR", "object": status_of(error)}) + b"\n"


def _error_event(error: IsthmusError) -> bytes:
    return event(status_of(error), "error")


def _event_encoder(call: Call) -> Callable[[Change], bytes]:
    convert = call.convert or (lambda record: record)

    def encode(change: Change) -> bytes:
        data = convert(change.record).data if change.record else b"{}"
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (change.version, change.type.lower().encode(), data)

    return encode


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines in pieces worth a write. What waits is shared by all watchers; a joined piece is this one's own."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= _PIECE:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


class _Encoder:
    """Lines for one watcher that wants another form, or a view."""

    def __init__(self, call: Call, options: ListOptions) -> None:
        self._view, self._convert = call.target.view, call.convert
        self._form = call.form
        self._include = options.include
        self._header = True

    def __call__(self, change: Change) -> bytes:
        if change.record is None:
            return self._line(change.type, self._bookmark(change.version))
        record = change.record if self._convert is None else self._convert(change.record)
        if self._form is Form.OBJECT:
            return b'{"type":"%b","object":%b}\n' % (change.type.encode(), record.data)
        return self._line(change.type, self._shown(record))

    def _shown(self, record: Record) -> dict[str, Any]:
        if self._form is Form.METADATA:
            return partial_metadata(record.obj)
        header, self._header = self._header, False
        metadata = {"resourceVersion": str(record.version)}
        return table(self._view.kind, [record.obj], metadata, utcnow(), self._include, header=header)

    def _bookmark(self, version: int) -> dict[str, Any]:
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        kind = self._view.kind
        if self._form is Form.TABLE:
            header, self._header = self._header, False
            return table(kind, [], {"resourceVersion": str(version)}, utcnow(), header=header)
        if self._form is Form.METADATA:
            return {"kind": "PartialObjectMetadata", "apiVersion": META_V1, "metadata": metadata}
        return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}

    @staticmethod
    def _line(type_: EventType, obj: dict[str, Any]) -> bytes:
        return orjson.dumps({"type": str(type_), "object": obj}) + b"\n"


_shared_line = attrgetter("line")


def _encoder(call: Call, options: ListOptions) -> Callable[[Change], bytes]:
    if call.form is Form.OBJECT and call.convert is None:
        return _shared_line
    return _Encoder(call, options)
