"""The images of one site, unpacked: each once, whole or not at all, for as long as there is room.

```
folder/
  roots/<key>/         root/ is what jobs see, image.json what is known of it; last used when image.json was touched;
                       tenants/<tenant> is touched when a job of that tenant uses it
  blobs/<digest>       layers as they were fetched, for other images that have them too; `.part` while they are
  blobs/<owner>/…      those that are not for everybody
  meanings/<digest>    of an index: the digest of the image in it that this machine runs
  locks/<key>          shared: somebody uses the image; alone: it is being made, or removed
  staging/<key>-…/     being unpacked, or removed
```

The key of an image is its digest; with an owner, the digest and a mark of the owner. Who is not the owner finds it
neither here nor by its layers, so that knowing a digest gives nobody what a registry does not.

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
import hashlib
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
from .manifests import bad, is_digest
from .unpacking import BAD

Fetch = Callable[[], Awaitable[PackedImage]]
"""Brings what an image is made of to this machine."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AT_ONCE = 2
"""Images unpacked at the same time: more would only make each of them slower."""
_BLOBS_SHARE = 4
_MOST_MEANINGS = 10_000
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
    key: str = ""
    """What the cache knows it by."""


@dataclass(frozen=True, slots=True)
class KeptImage:
    """An image that is kept, as those who look after images see it."""

    image: UnpackedImage
    used_at: float
    """Seconds since 1970."""
    tenants: frozenset[str]
    """Whose jobs used it."""
    private: bool
    """Whether it is for its owner alone."""


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

    def blobs_of(self, owner: str) -> Path:
        """Where layers are fetched to that are for an owner alone."""
        if not owner:
            return self.blobs
        folder = self.blobs / _mark(owner)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def has(self, digest: str, owner: str = "") -> bool:
        """Whether it is here, unpacked, for everybody or for an owner."""
        return self._record(_key(digest, owner)).exists()

    def meant(self, digest: str) -> str:
        """The digest of the image that is run when this one, maybe of an index, is asked for."""
        with contextlib.suppress(OSError, ValueError):
            found = (self._meanings / digest.removeprefix("sha256:")).read_text()
            if is_digest(found):
                return found
        return digest

    def note_meaning(self, index: str, digest: str) -> None:
        """Remember which image of an index is run here: the same for as long as there is this index."""
        with contextlib.suppress(OSError):
            if len(os.listdir(self._meanings)) >= _MOST_MEANINGS:  # noqa: PTH208
                shutil.rmtree(self._meanings, ignore_errors=True)
                self._make_folders()
            draft = self._meanings / f".{secrets.token_hex(6)}"
            draft.write_text(digest)
            draft.rename(self._meanings / index.removeprefix("sha256:"))

    @asynccontextmanager
    async def use(
        self, digest: str, name: str, fetch: Fetch, *, owner: str = "", tenant: str = ""
    ) -> AsyncIterator[UnpackedImage]:
        """The image, fetched and unpacked if it is not yet; it stays at least until the end of the block.

        With an `owner` it is for that one alone; `tenant` is whose job uses it. Raises EngineRefused for an image that
        cannot be used, SiteUnavailable where it cannot be unpacked now.
        """
        key = _key(digest, owner)
        try:
            async with self._waiting.hold(key):
                self._make_folders()
                if not self._record(key).exists():
                    await self._make(key, name, fetch)
            # The lock is taken before it is looked once more: whoever removes images takes it alone.
            lock = await self._locked(key, fcntl.LOCK_SH)
        except OSError as error:
            raise self._failed(name, error.errno, str(error)) from error
        try:
            found = self._read(key)
            if found is None:
                raise SiteUnavailable(f"The image {name} was removed while it was asked for. It is tried again.")
            self._note_use(key, tenant)
            yield found
        finally:
            os.close(lock)

    def _note_use(self, key: str, tenant: str) -> None:
        os.utime(self._record(key))
        if tenant and "/" not in tenant and not tenant.startswith("."):
            with contextlib.suppress(OSError):
                (self._tenants(key)).mkdir(mode=0o700, exist_ok=True)
                (self._tenants(key) / tenant).touch()

    def kept(self) -> list[KeptImage]:
        """All images that are there, with whose jobs used them. Work for a thread."""
        found = []
        for image in self.list():
            with contextlib.suppress(OSError):
                used = self._record(image.key).stat().st_mtime
                folder = self._tenants(image.key)
                tenants = frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()  # noqa: PTH208
                found.append(KeptImage(image, used, tenants, "." in image.key))
        return found

    def list(self) -> list[UnpackedImage]:
        """All images that are there, those used last first."""
        with contextlib.suppress(FileNotFoundError):
            records = [(path, path.stat().st_mtime) for path in self._roots.glob("*/image.json")]
            ordered = [path.parent.name for path, _ in sorted(records, key=lambda pair: -pair[1])]
            return [found for digest in ordered if (found := self._read(f"sha256:{digest}"))]
        return []

    def remove(self, key: str) -> bool:
        """Remove an image; False if it is in use. Work for a thread."""
        lock = _lock(self._lock_file(key), fcntl.LOCK_EX)
        if lock is None:
            return False
        gone = self._staged(key)
        try:
            if _digest(key) in self._in_use():
                return False
            with contextlib.suppress(FileNotFoundError):
                self._root(key).rename(gone)
        finally:
            os.close(lock)
        reach("images:removing")
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def leave(self, key: str, tenant: str | None) -> bool:
        """A tenant needs an image no longer: it goes unless others used it too. None: it goes for all. As `remove`."""
        if tenant is not None and any(mark.name != tenant for mark in self._tenants(key).glob("*")):
            (self._tenants(key) / tenant).unlink(missing_ok=True)
            return True
        return self.remove(key)

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
            if image.key != keep and self.remove(image.key):
                total -= image.bytes
        self._forget_blobs()

    def _forget_blobs(self) -> None:
        """Layers are kept for other images that have them too, in a quarter of the room."""
        entries = (entry for entry in self.blobs.rglob("*") if not entry.is_dir())
        found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in entries)
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self._settings.max_bytes // _BLOBS_SHARE:
                return
            path.unlink(missing_ok=True)
            total -= size

    async def _make(self, key: str, name: str, fetch: Fetch) -> None:
        """Fetch and unpack, with the lock held: another process may have been doing the same."""
        lock = await self._locked(key, fcntl.LOCK_EX)
        try:
            if self._record(key).exists():
                return
            image = await fetch()
            staged = self._staged(key)
            try:
                (staged / "root").mkdir(parents=True)
                made = await self._unpack(image, staged / "root", name)
                record = {"digest": _digest(key), "name": name, "env": image.config.env, **made}
                (staged / "image.json").write_text(json.dumps(record))
                reach("images:unpacked")
                staged.rename(self._root(key))
                reach("images:ready")
            finally:
                await asyncio.to_thread(shutil.rmtree, staged, ignore_errors=True)
        finally:
            os.close(lock)
        await asyncio.to_thread(self._tidy, key)

    async def _locked(self, key: str, kind: int) -> int:
        """The lock of an image. Only another process can have it for long, so that looking again is enough."""
        while (lock := _lock(self._lock_file(key), kind)) is None:  # noqa: ASYNC110
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

    def _read(self, key: str) -> UnpackedImage | None:
        try:
            record = json.loads(self._record(key).read_bytes())
            return UnpackedImage(
                _digest(key),
                self._root(key) / "root",
                dict(record["env"]),
                int(record["bytes"]),
                int(record["files"]),
                str(record["name"]),
                key,
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _make_folders(self) -> None:
        for folder in (self._folder, self._roots, self._staging, self.blobs, self._meanings, self._folder / "locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _roots(self) -> Path:
        return self._folder / "roots"

    @property
    def _staging(self) -> Path:
        return self._folder / "staging"

    @property
    def _meanings(self) -> Path:
        return self._folder / "meanings"

    def _root(self, key: str) -> Path:
        return self._roots / key.removeprefix("sha256:")

    def _record(self, key: str) -> Path:
        return self._root(key) / "image.json"

    def _tenants(self, key: str) -> Path:
        return self._root(key) / "tenants"

    def _lock_file(self, key: str) -> Path:
        return self._folder / "locks" / key.removeprefix("sha256:")

    def _staged(self, key: str) -> Path:
        return self._staging / f"{key.removeprefix('sha256:')}-{secrets.token_hex(6)}"


def _mark(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def _key(digest: str, owner: str) -> str:
    return f"{digest}.{_mark(owner)}" if owner else digest


def _digest(key: str) -> str:
    return key.partition(".")[0]


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
