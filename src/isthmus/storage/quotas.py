"""How much a tenant keeps, and how much more it may.

What is there is counted by looking, now and then; what is added in between is added to the count. Several that send at
once may exceed the quota by what they are just sending: the next look sees it.

What a job left is kept even when the quota is used: the job was let run, its folder counted until then, and to throw
away what it made would be worse than to refuse the next one. The outputs of one job alone stay within the quota.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from isthmus._kit.quantities import format_bytes
from isthmus.errors import TooLarge


class Allowance(NamedTuple):
    """What a tenant may keep."""

    limit: int
    """Bytes, of everything together."""
    elsewhere: int = 0
    """Bytes of that which are taken by what is not counted here: logs and working folders."""


AllowanceOf = Callable[[str], Awaitable[Allowance | None]]
"""What a tenant may keep; None: any number of bytes."""
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 30.0, 1.0


async def unlimited(namespace: str) -> Allowance | None:
    """No tenant has a limit."""
    del namespace
    return None


class StorageQuotas:
    """What tenants may still keep."""

    def __init__(self, allowance_of: AllowanceOf = unlimited) -> None:
        self._allowance_of = allowance_of
        self._counts: dict[str, tuple[float, int]] = {}

    async def check(self, namespace: str, home: Path, more: int) -> None:
        """Raise TooLarge if so many bytes more are too many."""
        allowed = await self._allowance_of(namespace)
        if allowed is None:
            return
        left = allowed.limit - allowed.elsewhere - more
        if await self._used(namespace, home, _LOOK_SECONDS) <= left:
            return
        # What was removed a moment ago makes room: looked at again before it is refused, though not all the time.
        if await self._used(namespace, home, _LOOK_AGAIN_SECONDS) > left:
            raise exceeded(namespace, allowed.limit)

    async def check_alone(self, namespace: str, size: int) -> None:
        """Raise TooLarge if so many bytes are too many though there were nothing else."""
        allowed = await self._allowance_of(namespace)
        if allowed is not None and size > allowed.limit:
            raise TooLarge(
                f"it is more than the whole storage quota of {namespace}, {format_bytes(allowed.limit)}; "
                "ask for a higher quota"
            )

    async def used(self, namespace: str, home: Path) -> int:
        """Bytes that the tenant's contents take."""
        return await self._used(namespace, home, _LOOK_SECONDS)

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
        f"the storage quota of {namespace}, {format_bytes(limit)}, is used. Delete jobs whose files, outputs and logs "
        "are no longer needed with isthmus delete job NAME (they count for up to a quarter of an hour after; isthmus "
        f"tenant {namespace} shows what takes the room), or ask for a higher quota"
    )


def disk_bytes(source: Path | int) -> int:
    """What a file takes on the disk, as far as it can be seen: holes take nothing."""
    try:
        info = os.fstat(source) if isinstance(source, int) else source.stat(follow_symlinks=False)
    except OSError:
        return 0
    return min(info.st_size, info.st_blocks * 512)


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
