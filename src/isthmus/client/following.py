"""Streams that outlive their connection: logs resumed from an offset, watches resumed from a version. Pure.

Each class holds where the stream is and says which request goes on from there. The clients feed it what arrives
and report failures; it answers with how long to wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from isthmus import errors

from . import requests
from .answers import error_of_status
from .flows import TERMINAL, backoff, with_kind
from .places import Place
from .requests import Object, Request

OFFSET_HEADER = "isthmus-log-offset"


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
        """`pinned` says that only this attempt is wanted; otherwise the next tries are followed too."""
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
        told = headers.get(OFFSET_HEADER, "")
        if told.isdigit():
            self.offset = int(told)
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
        """The stream ended and the job is like this: whether that was all. A next try is followed from its start."""
        self.job = job
        latest, phase = _attempt(job), (job.get("status") or {}).get("phase")
        if self.attempt is not None and latest > self.attempt:
            if self._pinned:
                return True
            self.attempt, self.offset = self.attempt + 1, 0
            return False
        return phase in TERMINAL


def _attempt(job: Mapping[str, Any]) -> int:
    return int((job.get("status") or {}).get("attempt") or 0)


class WatchEvent(NamedTuple):
    """One change: ADDED, MODIFIED or DELETED, and the object."""

    type: str
    object: Object


class WatchCursor:
    """Where a watch is, and what it has shown: after a gap, the difference is told as ordinary changes."""

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


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return lines
