"""How much a tenant keeps, and how much more it may.

What is there is counted by looking, now and then; what is added in between is added to the count. Several that send at
once may exceed the quota by what they are just sending: the next look sees it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from isthmus._kit.quantities import format_bytes
from isthmus.errors import TooLarge

LimitOf = Callable[[str], Awaitable[int | None]]
"""Bytes that a tenant may keep; None: any number."""
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 30.0, 1.0


async def unlimited(namespace: str) -> int | None:
    """No tenant has a limit."""
    del namespace
    return None


class StorageQuotas:
    """What tenants may still keep."""

    def __init__(self, limit_of: LimitOf = unlimited) -> None:
        self._limit_of = limit_of
        self._counts: dict[str, tuple[float, int]] = {}

    async def check(self, namespace: str, home: Path, more: int) -> None:
        """Raise TooLarge if so many bytes more are too many."""
        limit = await self._limit_of(namespace)
        if limit is None or await self._used(namespace, home, _LOOK_SECONDS) + more <= limit:
            return
        # What was removed a moment ago makes room: looked at again before it is refused, though not all the time.
        if await self._used(namespace, home, _LOOK_AGAIN_SECONDS) + more > limit:
            raise exceeded(namespace, limit)

    def removed(self, namespace: str) -> None:
        """Something was removed: count again when it matters."""
        self._counts.pop(namespace, None)

    def added(self, namespace: str, size: int) -> None:
        """So many bytes were added."""
        if count := self._counts.get(namespace):
            self._counts[namespace] = (count[0], count[1] + size)

    async def _used(self, namespace: str, home: Path, oldest: float) -> int:
        at, used = self._counts.get(namespace, (float("-inf"), 0))
        if time.monotonic() - at > oldest:
            used = await asyncio.to_thread(used_bytes, home)
            self._counts[namespace] = (time.monotonic(), used)
        return used


def exceeded(namespace: str, limit: int) -> TooLarge:
    """What is said to a tenant that has used its quota."""
    return TooLarge(
        f"the storage quota of {namespace}, {format_bytes(limit)}, is used. Delete jobs whose files and outputs are no "
        "longer needed (they count for up to a day after), or ask for a higher quota"
    )


def used_bytes(home: Path) -> int:
    """What the contents below take on the disk."""
    total = 0
    try:
        folders = [entry.path for entry in os.scandir(home / "sha256") if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return 0
    for folder in folders:
        try:
            total += sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(folder))
        except FileNotFoundError:
            continue  # just swept
    return total
