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
from typing import Any

from isthmus.errors import Expired, IsthmusError
from isthmus.kubernetes.client import KubernetesClient

from . import parsing
from .parsing import Pod

log = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0


class PodWatcher:
    """Keeps the snapshot of all pods of a site fresh."""

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
        self.synced = False
        """Whether what is known is what the API server says now."""

    async def list(self) -> None:
        """Look at all pods."""
        begun = time.monotonic()
        items, version = await self._client.list_all(self._path, self._selector)
        found = (_understood(item) for item in items)
        self._version = version
        self._listed({seen.name: seen for seen in found if seen is not None}, begun)
        self.synced = True

    async def run(self) -> None:
        """Follow the pods until cancelled. If anything unforeseen ends it, it begins again with a new list."""
        try:
            await self._run()
        except Exception:
            self._version, self.synced = "", False
            raise

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

    async def _follow(self) -> None:
        watch = self._client.watch(self._path, self._selector, self._version, self._seconds)
        async with contextlib.aclosing(watch) as events:
            async for kind, obj in events:
                self.synced = True  # an event proves that the watch is heard
                self._version = obj["metadata"]["resourceVersion"]
                if kind != "BOOKMARK" and (seen := _understood(obj)) is not None:
                    self._changed(kind, seen)


def _understood(obj: Any) -> Pod | None:
    """A pod; None if it is none of ours, or says what no pod can say: that is the trouble of one run alone."""
    try:
        return parsing.pod(obj)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = obj.get("metadata", {}).get("name") if isinstance(obj, dict) else None
        log.warning("a pod could not be understood", extra={"pod": name, "error": repr(error)})
        return None
