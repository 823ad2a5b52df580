"""Copies of what pods print, kept on this side: live while they run, whole when they ended, there when they are gone.

Kubernetes has no offsets, and a node keeps only the last part of a long log. So a copy that was interrupted is gone on
with by reading from the start and passing over what is there already; if what comes is not what we have, the place
where ours ends is searched for, and what cannot be found is said to be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from weakref import WeakValueDictionary

from isthmus._kit.locks import KeyedLocks
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import Stream
from isthmus.errors import EngineRefused, IsthmusError, NotFound
from isthmus.kubernetes.client import KubernetesClient

log = logging.getLogger(__name__)

TAIL = 4096
"""Bytes by which a place in a log is known again."""
LOST = b"\n[isthmus: a part of this log was lost: the node had dropped it before it could be copied]\n"
FOLLOW_AFTER = 2.0
"""Seconds after which a log is followed though nobody reads it. Most short runs end before, and are copied once."""
_SILENCE = 600.0
_AFTER_END = 2.0
"""Seconds until a log that ended is looked at again. By then the watch has reported that the container ended, too."""
# What a node answers, as if it were the log, when it no longer has the container.
_NO_LOG = re.compile(rb"(unable to retrieve container logs for|failed to try resolving symlinks in path) [^\n]*\n?")
# What it may add to the end of a log, when the container goes while it is read.
_GONE = re.compile(
    rb"rpc error: code = NotFound desc = an error occurred when try to find container "
    rb'"[0-9a-f]{64}": not found\n?\Z'
)
Key = tuple[str, Stream]
FOLLOWER = "kubernetes-log"
"""The task that follows one log."""
_COPYING: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
"""One writer of a copy at a time: a control plane that begins to lead may have opened the site before, to read from."""


class LogCopies:
    """The copies of one site."""

    def __init__(self, client: KubernetesClient, folder: Path, tasks: SupervisedTasks) -> None:
        self._client, self._folder, self._tasks = client, folder, tasks
        self._followed: set[Key] = set()
        self._grown: dict[Key, asyncio.Event] = {}
        self._read: dict[Key, asyncio.Event] = {}
        """Set where somebody waits for more."""
        self._fetching = KeyedLocks()

    async def open(self) -> None:
        """Make the folder."""
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)

    async def close(self) -> None:
        """End all following, and wake everybody."""
        for key in list(self._followed):
            await self._unfollow(key)
        for event in self._grown.values():
            event.set()

    def follow(self, run_id: str, stream: Stream, pod: str, container: str, *, at_once: bool = False) -> None:
        """Copy as it is written; once. `at_once`: the pod goes soon, and its log with it."""
        key = run_id, stream
        if key not in self._followed:
            self._followed.add(key)
            self._tasks.spawn(FOLLOWER, lambda: self._follow(key, pod, container), of=_name(key))
        if at_once:
            self._read.setdefault(key, asyncio.Event()).set()

    async def finish(self, run_id: str, stream: Stream, pod: str, container: str) -> bool:
        """Copy what is missing of a container that ended; False if the end of its log is no longer to be had."""
        await self._unfollow((run_id, stream))
        try:
            await self._copy((run_id, stream), pod, container, follow=False)
        except (NotFound, EngineRefused):
            return False
        return True

    async def fetch(self, run_id: str, stream: Stream, pod: str, container: str) -> None:
        """Copy a log that another control plane followed to its end, while its pod is there; once."""
        key = run_id, stream
        path = self._path(*key)
        if path.exists():
            return
        async with self._fetching.hold(key):
            try:
                if not path.exists():
                    await self._copy(key, pod, container, follow=False)
            except BaseException as error:  # a part of it must not be taken for the whole
                path.unlink(missing_ok=True)
                if not isinstance(error, NotFound | EngineRefused):
                    raise

    async def _unfollow(self, key: Key) -> None:
        if key in self._followed:
            self._followed.discard(key)
            await self._tasks.stop(FOLLOWER, of=_name(key))

    def wake(self, run_id: str) -> None:
        """The run ended: nobody need wait any longer."""
        for stream in Stream:
            self._read.pop((run_id, stream), None)
            if event := self._grown.pop((run_id, stream), None):
                event.set()

    async def _follow(self, key: Key, pod: str, container: str) -> None:
        failures = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_AFTER):
                await self._read.setdefault(key, asyncio.Event()).wait()
        while True:
            try:
                await self._copy(key, pod, container, follow=True)
                failures = 0
            except (NotFound, EngineRefused):
                return
            except IsthmusError as error:
                failures += 1
                log.info("a log could not be followed", extra={"run": key[0], "error": str(error)})
            await asyncio.sleep(min(10.0, 0.5 * 2.0 ** min(failures, 5)) if failures else _AFTER_END)

    async def _copy(self, key: Key, pod: str, container: str, *, follow: bool) -> None:
        """Append what is new; raises SiteUnavailable, NotFound."""
        path = self._path(*key)
        params = {"container": container, **({"follow": "true"} if follow else {})}
        async with _COPYING.setdefault(path, asyncio.Lock()):
            known, tail = await asyncio.to_thread(_end_of, path)
            async with self._client.stream(f"{pod}/log", params, silence=_SILENCE) as blocks:
                if not await self._pass_over(key, blocks, known, tail):
                    return
            await self._search(key, pod, container, tail)

    async def _pass_over(self, key: Key, blocks: AsyncIterator[bytes], known: int, tail: bytes) -> bool:
        """Append what comes after the known part; True if the known part is not what comes."""
        position, seen = 0, b""  # what was passed over
        with self._path(*key).open("ab") as file:
            async for block in blocks:
                if not position and _NO_LOG.fullmatch(block):
                    raise NotFound("the node no longer has the log")
                new = _GONE.sub(b"", block)
                if position < known:
                    old = new[: known - position]
                    position += len(old)
                    seen = (seen + old)[-len(tail) :]
                    new = new[len(old) :]
                    if position == known and seen != tail:
                        return True
                if new:
                    await asyncio.to_thread(file.write, new)
                    file.flush()
                    self._notify(key)
        return position < known

    async def _search(self, key: Key, pod: str, container: str, tail: bytes) -> None:
        """Find where our copy ends in what the node still has, and append the rest."""
        whole = bytearray()
        async with self._client.stream(f"{pod}/log", {"container": container}, silence=_SILENCE) as blocks:
            async for block in blocks:
                whole += block
        whole = bytearray(_GONE.sub(b"", whole))
        place = whole.rfind(tail)
        rest = bytes(whole[place + len(tail) :]) if place >= 0 else (LOST + bytes(whole) if whole else b"")
        await asyncio.to_thread(_append, self._path(*key), rest)
        self._notify(key)

    def _notify(self, key: Key) -> None:
        if event := self._grown.pop(key, None):
            event.set()

    # Reading

    def _path(self, run_id: str, stream: Stream) -> Path:
        return self._folder / f"{run_id}.{stream.value}"

    async def measure(self) -> dict[str, int]:
        """Bytes that the copies of each run take."""
        return await asyncio.to_thread(_sizes, self._folder)

    async def read(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a copy; empty at its present end."""
        return await asyncio.to_thread(part_of, self._path(run_id, stream), offset, size)

    async def size(self, run_id: str, stream: Stream) -> int:
        """How long a copy is now."""
        path = self._path(run_id, stream)
        return path.stat().st_size if path.exists() else 0

    async def wait(self, run_id: str, stream: Stream, offset: int, seconds: float) -> None:
        """Return when the copy is longer than `offset`, when the run ends, or after so many seconds."""
        event = self._grown.setdefault((run_id, stream), asyncio.Event())
        self._read.setdefault((run_id, stream), asyncio.Event()).set()
        if await self.size(run_id, stream) > offset:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def remove(self, run_id: str) -> None:
        """Remove the copies of a run."""
        for stream in Stream:
            await asyncio.to_thread(self._path(run_id, stream).unlink, missing_ok=True)


def _sizes(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            run_id = path.name.rpartition(".")[0]
            found[run_id] = found.get(run_id, 0) + path.stat(follow_symlinks=False).st_blocks * 512
    return found


def _name(key: Key) -> str:
    return f"{key[0]}.{key[1].value}"


def _end_of(path: Path) -> tuple[int, bytes]:
    """How long a file is, and its last bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            return size, file.read()
    except FileNotFoundError:
        return 0, b""


def part_of(path: Path, offset: int, size: int) -> bytes:
    """Some bytes of a file; none if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        return b""


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
