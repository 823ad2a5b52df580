"""One list and one watch of all pods of the site, for everybody.

A list that could not be had, a watch that was cut or stayed silent change nothing that is known: it is asked again,
from the version that was seen last, and with a new list where that is too old.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from isthmus.errors import Expired, IsthmusError
from isthmus.kubernetes.client import KubernetesClient

from . import parsing
from .parsing import Pod

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0


class Watcher:
    """Keeps the picture of all pods of a site fresh."""

    def __init__(
        self,
        client: KubernetesClient,
        path: str,
        selector: str,
        seconds: int,
        *,
        listed: Callable[[dict[str, Pod], float], None],
        changed: Callable[[str, Pod], None],
    ) -> None:
        self._client, self._path, self._selector, self._seconds = client, path, selector, seconds
        self._listed, self._changed = listed, changed
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self.synced = False
        """Whether what is known is what the API server says now."""

    async def open(self) -> None:
        """List once, then watch; raises SiteUnavailable if there is no list."""
        await self.list()
        self._task = asyncio.create_task(self._run(), name="kubernetes-watcher")

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def list(self) -> None:
        """Look at all pods."""
        begun = time.monotonic()
        items, version = await self._client.list_all(self._path, self._selector)
        found = (parsing.pod(item) for item in items)
        self._version = version
        self._listed({seen.name: seen for seen in found if seen is not None}, begun)
        self.synced = True

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                if not self._version:
                    await self.list()
                await self._follow()
                failures = 0
            except Expired:
                self._version, self.synced = "", False
            except IsthmusError as error:
                failures += 1
                self.synced = False
                log.warning("no news of the pods", extra={"error": str(error)})
                pause = error.retry_after or min(LONGEST_PAUSE, 0.25 * 2.0 ** min(failures, 8))
                await asyncio.sleep(pause)
            except Exception:  # nobody would hear of any pod again
                log.exception("news of the pods could not be understood")
                self._version, self.synced = "", False
                await asyncio.sleep(1)

    async def _follow(self) -> None:
        watch = self._client.watch(self._path, self._selector, self._version, self._seconds)
        async with contextlib.aclosing(watch) as events:
            async for kind, obj in events:
                self.synced = True  # an event proves that the watch is heard
                self._version = obj["metadata"]["resourceVersion"]
                if kind != "BOOKMARK" and (seen := parsing.pod(obj)) is not None:
                    self._changed(kind, seen)
