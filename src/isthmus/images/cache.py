"""The images of one site, unpacked: each once, whole or not at all, for as long as there is room.

```
folder/
  roots/<digest>/      root/ is what jobs see, image.json what is known of it; last used when image.json was touched
  blobs/<digest>       layers as they were fetched, for other images that have them too; `.part` while they are
  locks/<digest>       shared: somebody uses the image; alone: it is being made, or removed
  staging/<digest>-…/  being unpacked, or removed
```

An image is unpacked under another name and renamed when it is complete, so that a crash at any moment leaves it there
whole or not at all; what a crash left in `staging` is removed by whoever comes next. Whoever wants the same image waits
for the lock, also in another process: it is made once. The lock is held until the caller has written down that it uses
the image; afterwards `in_use` tells. What is in use is never removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from isthmus._kit.children import Children, Ended
from isthmus._kit.crashpoints import reach
from isthmus._kit.locks import KeyedLocks
from isthmus._kit.quantities import format_bytes
from isthmus.errors import SiteUnavailable

from .archives import PackedImage
from .layers import Limits
from .manifests import bad
from .unpacking import BAD

Fetch = Callable[[], Awaitable[PackedImage]]
"""Brings what an image is made of to this machine."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AT_ONCE = 2
"""Images unpacked at the same time: more would only make each of them slower."""
_BLOBS_SHARE = 4
_LOOK_SECONDS = 0.1
"""Between looks at a lock that another process has."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Where images are kept, and how many."""

    folder: Path
    """On a local file system, where locks and renames are reliable."""
    max_bytes: int = 100 * 2**30
    """Of all unpacked images; beyond it, those that were not used for longest go. Default 100 GiB."""
    limits: Limits = field(default_factory=Limits)
    """Of one image; it may never take more than all may, nor the last tenth of the free space."""
    unpack_seconds: float = 3600.0
    """How long unpacking one image may take. Default an hour: a slow disk, and the largest images."""


@dataclass(frozen=True, slots=True)
class UnpackedImage:
    """An image, ready to be run."""

    digest: str
    root: Path
    env: dict[str, str]
    bytes: int
    files: int
    name: str
    """What it was called when it was unpacked."""


class ImageCache:
    """Unpacked images. `in_use` tells the digests of images that something runs in, or is about to."""

    def __init__(self, settings: CacheSettings, in_use: Callable[[], set[str]]) -> None:
        self._settings, self._in_use = settings, in_use
        self._folder = settings.folder
        self._children = Children(_AT_ONCE, "images")
        self._waiting = KeyedLocks()

    def close(self) -> None:
        """Let go; what is being unpacked is given up."""
        self._children.close()

    @property
    def blobs(self) -> Path:
        """Where layers are fetched to."""
        return self._folder / "blobs"

    def has(self, digest: str) -> bool:
        """Whether it is here, unpacked."""
        return self._record(digest).exists()

    @asynccontextmanager
    async def use(self, digest: str, name: str, fetch: Fetch) -> AsyncIterator[UnpackedImage]:
        """The image, fetched and unpacked if it is not yet; it stays at least until the end of the block.

        Raises EngineRefused for an image that cannot be used, SiteUnavailable where it cannot be unpacked now.
        """
        try:
            async with self._waiting.hold(digest):
                self._make_folders()
                if not self.has(digest):
                    await self._make(digest, name, fetch)
            # The lock is taken before it is looked once more: whoever removes images takes it alone.
            lock = await self._locked(digest, fcntl.LOCK_SH)
        except OSError as error:
            raise self._failed(name, error.errno, str(error)) from error
        try:
            found = self._read(digest)
            if found is None:
                raise SiteUnavailable(f"The image {name} was removed while it was asked for. It is tried again.")
            os.utime(self._record(digest))
            yield found
        finally:
            os.close(lock)

    def list(self) -> list[UnpackedImage]:
        """All images that are there, those used last first."""
        with contextlib.suppress(FileNotFoundError):
            records = [(path, path.stat().st_mtime) for path in self._roots.glob("*/image.json")]
            ordered = [path.parent.name for path, _ in sorted(records, key=lambda pair: -pair[1])]
            return [found for digest in ordered if (found := self._read(f"sha256:{digest}"))]
        return []

    def remove(self, digest: str) -> bool:
        """Remove an image; False if it is in use. Work for a thread."""
        lock = _lock(self._lock_file(digest), fcntl.LOCK_EX)
        if lock is None:
            return False
        gone = self._staged(digest)
        try:
            if digest in self._in_use():
                return False
            with contextlib.suppress(FileNotFoundError):
                self._root(digest).rename(gone)
        finally:
            os.close(lock)
        reach("images:removing")
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _tidy(self, keep: str) -> None:
        """Remove what somebody left who was killed, and what was not used for longest until the rest fits."""
        for path in self._staging.iterdir():
            lock = _lock(self._lock_file(path.name.partition("-")[0]), fcntl.LOCK_EX)
            if lock is not None:  # nobody is working on it
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
        images = self.list()
        total = sum(image.bytes for image in images)
        for image in reversed(images):
            if total <= self._settings.max_bytes:
                break
            if image.digest != keep and self.remove(image.digest):
                total -= image.bytes
        self._forget_blobs()

    def _forget_blobs(self) -> None:
        """Layers are kept for other images that have them too, in a quarter of the room."""
        found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in self.blobs.iterdir())
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self._settings.max_bytes // _BLOBS_SHARE:
                return
            path.unlink(missing_ok=True)
            total -= size

    async def _make(self, digest: str, name: str, fetch: Fetch) -> None:
        """Fetch and unpack, with the lock held: another process may have been doing the same."""
        lock = await self._locked(digest, fcntl.LOCK_EX)
        try:
            if self.has(digest):
                return
            image = await fetch()
            staged = self._staged(digest)
            try:
                (staged / "root").mkdir(parents=True)
                made = await self._unpack(image, staged / "root", name)
                record = {"digest": digest, "name": name, "env": image.config.env, **made}
                (staged / "image.json").write_text(json.dumps(record))
                reach("images:unpacked")
                staged.rename(self._root(digest))
                reach("images:ready")
            finally:
                await asyncio.to_thread(shutil.rmtree, staged, ignore_errors=True)
        finally:
            os.close(lock)
        await asyncio.to_thread(self._tidy, digest)

    async def _locked(self, digest: str, kind: int) -> int:
        """The lock of an image. Only another process can have it for long, so that looking again is enough."""
        while (lock := _lock(self._lock_file(digest), kind)) is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
        return lock

    async def _unpack(self, image: PackedImage, root: Path, name: str) -> dict[str, Any]:
        layers = [
            {
                "path": str(layer.piece.path),
                "offset": layer.piece.offset,
                "size": layer.piece.size,
                "digest": layer.digest,
                "diff_id": layer.diff_id,
            }
            for layer in image.layers
        ]
        limits = self._settings.limits
        free = shutil.disk_usage(self._folder).free * 9 // 10
        most = min(limits.bytes, self._settings.max_bytes, free)
        plan = {"root": str(root), "layers": layers, "limits": asdict(replace(limits, bytes=most))}
        words = [sys.executable, "-S", "-m", "isthmus.images.unpacking"]
        env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        seconds = self._settings.unpack_seconds
        try:
            ended = await self._children.run(words, env=env, stdin=json.dumps(plan).encode(), seconds=seconds)
        except TimeoutError:
            raise bad(f"{name} takes longer than {seconds:g} s to unpack") from None
        answer = _answer(ended)
        if ended.code == BAD and answer.get("too_large") and most == free:
            raise self._failed(name, errno.ENOSPC, "")
        if ended.code == BAD:
            raise bad(f"{name}: {answer['message']}")
        if ended.code:
            raise self._failed(name, answer.get("errno"), answer["message"])
        if not answer["shell"]:
            raise bad(f"{name} has no /bin/sh, which starts the job's program")
        return {"bytes": answer["bytes"], "files": answer["files"]}

    def _failed(self, name: str, code: int | None, why: str) -> SiteUnavailable:
        if code in _FULL:
            free = format_bytes(shutil.disk_usage(self._folder).free)
            why = f"there is no space left in {self._folder} ({free} free); remove what is not needed"
        return SiteUnavailable(f"The image {name} could not be unpacked: {why}. It is tried again later.")

    def _read(self, digest: str) -> UnpackedImage | None:
        try:
            record = json.loads(self._record(digest).read_bytes())
            return UnpackedImage(
                digest,
                self._root(digest) / "root",
                dict(record["env"]),
                int(record["bytes"]),
                int(record["files"]),
                str(record["name"]),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _make_folders(self) -> None:
        for folder in (self._folder, self._roots, self._staging, self.blobs, self._folder / "locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _roots(self) -> Path:
        return self._folder / "roots"

    @property
    def _staging(self) -> Path:
        return self._folder / "staging"

    def _root(self, digest: str) -> Path:
        return self._roots / digest.removeprefix("sha256:")

    def _record(self, digest: str) -> Path:
        return self._root(digest) / "image.json"

    def _lock_file(self, digest: str) -> Path:
        return self._folder / "locks" / digest.removeprefix("sha256:")

    def _staged(self, digest: str) -> Path:
        return self._staging / f"{digest.removeprefix('sha256:')}-{secrets.token_hex(6)}"


def _lock(path: Path, kind: int) -> int | None:
    """A descriptor that holds the lock until it is closed, or the process killed; None if somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return fd


def _answer(ended: Ended) -> dict[str, Any]:
    """What the process that unpacks said; one that was killed said nothing."""
    with contextlib.suppress(ValueError):
        answer = json.loads(ended.out)
        if isinstance(answer, dict):
            return answer
    last = ended.err.decode(errors="replace").strip().splitlines()[-1:]
    return {"message": f"unpacking ended with {ended.code}{': ' + last[0][:200] if last else ''}"}
