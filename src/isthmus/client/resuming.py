"""Streams that outlive their connection: logs resumed from an offset, watches resumed from a version. No I/O.

Each cursor holds where its stream is and says which request goes on from there; given a failure, it answers how long
to wait. A feed is a flow that also yields `Item`s, for whoever asked; it goes on from its cursor for as long as there
may be more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from isthmus import errors

from . import requests
from .answers import error_of_status
from .flows import TERMINAL, Flow, Open, Pause, Read, Step, ask, backoff, everything, with_kind
from .places import JOBS, Place
from .requests import Object, Request

T = TypeVar("T")
OFFSET_HEADER = "isthmus-log-offset"
_BREATH = Pause(0.05)
"""Before a stream that ended by itself is begun again."""


class Item(NamedTuple, Generic[T]):
    """What a feed has for whoever asked."""

    value: T


Feed = Generator[Step | Item[T], Any, None]
FAILURES = (errors.IsthmusError, TimeoutError)
"""What a feed is given when a step fails; anything else is a fault, and ends it."""


class Walk(Generic[T]):
    """The way along a feed: asked for what comes next, given how each step went."""

    def __init__(self, feed: Feed[T]) -> None:
        self._feed = feed
        self._answer: Any = None
        self._error: Exception | None = None

    def next(self) -> Step | Item[T] | None:
        """A step to take, an item, or None at the end."""
        answer, error = self._answer, self._error
        self._answer = self._error = None
        try:
            return self._feed.send(answer) if error is None else self._feed.throw(error)
        except StopIteration:
            return None

    def answered(self, answer: Any) -> None:
        """What the step came to; the feed learns it when it is asked on."""
        self._answer = answer

    def failed(self, error: Exception) -> None:
        """It came to nothing."""
        self._error = error


def read_working_file(namespace: str, name: str, path: str, offset: int = 0, size: int | None = None) -> Feed[bytes]:
    """One file of a running job as it is now, in pieces. It changes, so it is not gone on with after a failure."""
    yield Open(requests.working_file(namespace, name, path, offset, size))
    while chunk := (yield Read()):
        yield Item(chunk)


class LogCursor:
    """Where the reading of one stream of a job's output is."""

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        follow: bool = False,
        stream: str | None = None,
        offset: int = 0,
        tail: int | None = None,
        attempt: int | None = None,
        pinned: bool | None = None,
    ) -> None:
        """`pinned` says that only this attempt is wanted; otherwise the next attempts are followed too."""
        self.namespace, self.name = namespace, name
        self.follow, self.stream = follow, stream
        self.offset, self.attempt = offset, attempt
        self.job: Mapping[str, Any] | None = None
        """The job as it was when the stream last ended."""
        self._tail = tail
        self._pinned = attempt is not None if pinned is None else pinned
        self._failures = 0

    def request(self) -> Request:
        """What goes on from here."""
        return requests.log(
            self.namespace,
            self.name,
            follow=self.follow,
            offset=self.offset,
            stream=self.stream,
            tail=self._tail,
            attempt=self.attempt,
        )

    def opened(self, headers: Mapping[str, str]) -> None:
        """The stream begins: the server says at which offset, which differs from ours when only the tail is sent."""
        reported = headers.get(OFFSET_HEADER, "")
        if reported.isdigit():
            self.offset = int(reported)
        self._tail = None

    def advanced(self, size: int) -> None:
        """So many bytes arrived."""
        self.offset += size
        self._failures = 0

    def failed(self, error: errors.IsthmusError) -> float:
        """The connection broke: seconds to wait before going on, or the error when going on is of no use."""
        self._failures += 1
        if not self.follow or not isinstance(error, errors.Unavailable):
            raise error
        return error.retry_after or backoff(self._failures)

    def seen(self, job: Mapping[str, Any]) -> None:
        """The job before the stream begins: a followed stream names its attempt, or offsets would mean nothing."""
        if self.attempt is None:
            self.attempt = _attempt(job)

    def ended(self, job: Mapping[str, Any]) -> bool:
        """The stream ended and the job is like this: whether that was all. A next attempt is read from its start."""
        self.job = job
        latest, phase = _attempt(job), (job.get("status") or {}).get("phase")
        if self.attempt is not None and latest > self.attempt:
            if self._pinned:
                return True
            self.attempt, self.offset = self.attempt + 1, 0
            return False
        return phase in TERMINAL


def finish(flow: Flow[T]) -> Feed[T]:
    """A flow as a feed of one item: what it returns."""
    yield Item((yield from flow))


def gathered(feed: Feed[T]) -> Flow[list[T]]:
    """A feed as a flow that returns all of its items."""
    walk, found = Walk(feed), list[T]()
    while (step := walk.next()) is not None:
        if isinstance(step, Item):
            found.append(step.value)
            continue
        try:
            walk.answered((yield step))
        except FAILURES as error:
            walk.failed(error)
    return found


def read_log(cursor: LogCursor) -> Feed[bytes]:
    """The output after a cursor; if it is followed, until the job has ended."""
    job = requests.get(JOBS, cursor.namespace, cursor.name)
    while True:
        try:
            if cursor.follow and cursor.attempt is None:
                cursor.seen((yield from ask(job)))
            cursor.opened((yield Open(cursor.request())))
            while chunk := (yield Read()):
                cursor.advanced(len(chunk))
                yield Item(chunk)
            if not cursor.follow or cursor.ended((yield from ask(job))):
                return
            yield _BREATH
        except errors.IsthmusError as error:
            yield Pause(cursor.failed(error))


def _attempt(job: Mapping[str, Any]) -> int:
    return int((job.get("status") or {}).get("attempt") or 0)


class WatchEvent(NamedTuple):
    """One change: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: Object


class WatchCursor:
    """Where a watch is, and what it has shown: after a gap, the difference is reported as ordinary changes."""

    def __init__(self, place: Place, namespace: str | None, labels: str | None, fields: str | None) -> None:
        self.place, self.namespace, self.labels, self.fields = place, namespace, labels, fields
        self.version: str | None = None
        self._shown: dict[str, Object] = {}
        self._failures = 0

    def request(self) -> Request:
        """What goes on from here; only after a list."""
        assert self.version is not None
        return requests.watch(self.place, self.namespace, self.version, labels=self.labels, fields=self.fields)

    def listed(self, items: Iterable[Object], version: str) -> list[WatchEvent]:
        """A list was read: the changes since what was shown before."""
        self.version = version
        self._failures = 0
        present = {str(item["metadata"].get("uid")): item for item in items}
        events = [WatchEvent("DELETED", old) for uid, old in self._shown.items() if uid not in present]
        for uid, item in present.items():
            old = self._shown.get(uid)
            if old is None:
                events.append(WatchEvent("ADDED", item))
            elif old["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
                events.append(WatchEvent("MODIFIED", item))
        self._shown = present
        return events

    def feed(self, line: bytes) -> WatchEvent | None:
        """One line arrived: the change in it, if it is one. Raises Expired when a new list is needed."""
        if not line.strip():
            return None
        event = json.loads(line)
        kind, obj = str(event.get("type")), event.get("object") or {}
        self._failures = 0
        if kind == "ERROR":
            raise error_of_status(obj)
        meta = obj.get("metadata") or {}
        self.version = str(meta.get("resourceVersion") or self.version)
        if kind == "BOOKMARK":
            return None
        obj = with_kind(self.place, obj)
        uid = str(meta.get("uid"))
        if kind == "DELETED":
            self._shown.pop(uid, None)
        else:
            self._shown[uid] = obj
        return WatchEvent(kind, obj)

    def failed(self, error: errors.IsthmusError) -> float:
        """The stream broke or ended: seconds to wait before `request`, or before a new list if `version` is None."""
        if isinstance(error, errors.Expired):
            self.version = None
            return 0.0
        if not isinstance(error, errors.Unavailable):
            raise error
        self._failures += 1
        return error.retry_after or backoff(self._failures)


def read_watch(cursor: WatchCursor, timeout: float | None = None) -> Feed[WatchEvent]:
    """The changes after a cursor, for ever or for so many seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    while end is None or time.monotonic() < end:
        try:
            if cursor.version is None:
                found = everything(cursor.place, cursor.namespace, cursor.labels, cursor.fields)
                for event in cursor.listed(*(yield from found)):
                    yield Item(event)
            yield from _changes(cursor, end)
            pause = _BREATH
        except TimeoutError:
            return
        except errors.IsthmusError as error:
            pause = Pause(cursor.failed(error))
        yield pause if end is None else Pause(max(0.0, min(pause.seconds, end - time.monotonic())))


def _changes(cursor: WatchCursor, end: float | None) -> Feed[WatchEvent]:
    lines = Lines()
    yield Open(cursor.request())
    while chunk := (yield Read(None if end is None else max(0.001, end - time.monotonic()))):
        for line in lines.feed(chunk):
            if event := cursor.feed(line):
                yield Item(event)


def wait(place: Place, namespace: str, name: str, timeout: float | None) -> Flow[Object]:
    """Watch a job or an experiment until it has ended; raises TimeoutError if it takes longer than `timeout`."""
    what = f"{place.kind.lower()} {name!r}"
    first = yield from ask(requests.get(place, namespace, name))
    uid = first["metadata"].get("uid")
    if _ended(first):
        return first
    cursor = WatchCursor(place, namespace, None, f"metadata.name={name}")
    cursor.listed([first], str(first["metadata"].get("resourceVersion")))

    def last(event: WatchEvent) -> Object | None:
        if event.type == "DELETED" and event.object["metadata"].get("uid") == uid:
            raise errors.NotFound(f"{what} was deleted before it ended")
        return event.object if _ended(event.object) else None

    found = yield from _until(read_watch(cursor, timeout), last)
    if found is None:
        raise TimeoutError(f"{what} has not ended after {timeout:g} seconds")
    return found


def _ended(work: Mapping[str, Any]) -> bool:
    return (work.get("status") or {}).get("phase") in TERMINAL


def _until(feed: Feed[T], wanted: Callable[[T], Object | None]) -> Flow[Object | None]:
    """Go along a feed, up to the first item of which `wanted` makes something."""
    walk = Walk(feed)
    while (step := walk.next()) is not None:
        if isinstance(step, Item):
            if (found := wanted(step.value)) is not None:
                return found
            continue
        try:
            walk.answered((yield step))
        except FAILURES as error:
            walk.failed(error)
    return None


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines
