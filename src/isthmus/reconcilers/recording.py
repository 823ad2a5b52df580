"""Events for people: what happened to an object, as `kubectl describe` and `isthmus job` show it.

Events are courtesy, not state: they are written together when for a moment nothing more happens, so that they stand in
nobody's way, and when there are too many (ten thousand trivial jobs would make thirty thousand events) the ordinary
ones are left out and counted. They are removed after an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.ids import suffix
from isthmus.errors import IsthmusError, NotFound
from isthmus.metrics import EVENTS_DROPPED
from isthmus.resources.frame.meta import Resource
from isthmus.resources.kinds import EVENT, TENANT
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.runtime.declaring import Background
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key, Query, Store

if TYPE_CHECKING:
    from .shared import Shared

log = logging.getLogger(__name__)

RATE, BURST = 20.0, 200.0
"""Ordinary events per second in the long run, and at once."""
KEPT_FOR = timedelta(hours=1)
QUIET_PERIOD = 0.1
"""Seconds in which nothing more is said, before what was said is written."""
PATIENCE = 2.0
"""Seconds after which it is written although there is more and more to say."""
TOGETHER = 50


class Recorder:
    """Writes events."""

    def __init__(self, store: Store, tenants: Informer) -> None:
        self._store, self._tenants = store, tenants
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=2000)
        self._tokens, self._filled = BURST, time.monotonic()
        self._said = time.monotonic()

    def say(self, about: Resource, reason: str, message: str, *, warning: bool = False) -> None:
        """Report what happened to an object."""
        self._said = time.monotonic()
        if (not warning and not self._allowed()) or self._queue.full():
            EVENTS_DROPPED.inc()
            return
        now = timestamp(utcnow())
        namespace = about.namespace or SYSTEM_NAMESPACE
        self._queue.put_nowait(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{about.name[:200]}.{suffix(10)}", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": about.api_version,
                    "kind": about.kind,
                    "namespace": namespace,
                    "name": about.name,
                    "uid": about.uid,
                },
                "reason": reason,
                "message": message[:1024],
                "type": "Warning" if warning else "Normal",
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": "isthmus"},
                "reportingComponent": "isthmus",
            }
        )

    async def run(self) -> None:
        """Write what was said, and sweep out what is old, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            group.create_task(self._sweep())

    async def _write(self) -> None:
        while True:
            events = [await self._queue.get()]
            await self._calm()
            while not self._queue.empty():
                events.append(self._queue.get_nowait())
            for start in range(0, len(events), TOGETHER):
                some = events[start : start + TOGETHER]
                wanted = [event for event in some if self._is_heard(event["metadata"]["namespace"])]
                await asyncio.gather(*(self._write_one(event) for event in wanted))

    async def _calm(self) -> None:
        first, left = time.monotonic(), QUIET_PERIOD
        while left > 0:
            await asyncio.sleep(left)
            left = until_written(first, self._said, time.monotonic())

    async def _write_one(self, event: dict[str, Any]) -> None:
        try:
            await self._store.create(EVENT, event)
        except IsthmusError as error:
            log.info("event not written", extra={"error": str(error)})

    def _is_heard(self, namespace: str) -> bool:
        """Whether there is a tenant to notify. One that is made again under the same name must not hear of the old."""
        if namespace == SYSTEM_NAMESPACE:
            return True
        tenant = self._tenants.get(Key(TENANT.name, "", namespace))
        return tenant is not None and "deletionTimestamp" not in tenant.obj["metadata"]

    async def _sweep(self) -> None:
        while True:
            try:
                await self._remove_old(utcnow() - KEPT_FOR)
            except IsthmusError as error:
                log.info("old events not removed", extra={"error": str(error)})
            await asyncio.sleep(300)

    async def _remove_old(self, before: datetime) -> None:
        cursor: str | None = None
        while True:
            page = await self._store.list(Query(EVENT), limit=500, continue_=cursor)
            for record in page.records:
                if parse_timestamp(record.obj.get("lastTimestamp") or "1970-01-01T00:00:00Z") < before:
                    with contextlib.suppress(NotFound):  # went with its tenant meanwhile
                        await self._store.delete(Key(*record.key), uid=record.uid)
            if (cursor := page.continue_) is None:
                return

    def _allowed(self) -> bool:
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * RATE)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def until_written(first: float, latest: float, now: float) -> float:
    """Seconds until events are written, the first and the latest of which were said at these moments."""
    return min(latest + QUIET_PERIOD, first + PATIENCE) - now


def declare(shared: Shared) -> Background:
    """The part that writes events."""
    return Background(name="recorder", run=shared.recorder.run)
