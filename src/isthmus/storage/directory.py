"""Contents in a folder: `<root>/<namespace>/sha256/<2 digits>/<62 digits>`.

A content is written to `<root>/.incoming/`, hashed on its way, forced to the disk and renamed: what lies under a
digest is whole and is what the digest says, whatever moment the machine stops at. Who writes a temporary file
holds a lock on it, so that `open` can distinguish what a crash left behind from what another process is writing now.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from pydantic import ValidationError

from isthmus.errors import Invalid, NotFound, StoreUnavailable, TooLarge
from isthmus.resources.work.trees import Tree, digest_of

from .quotas import AllowanceOf, StorageQuotas, disk_bytes, unlimited

P = ParamSpec("P")
T = TypeVar("T")

MAX_TREE_BYTES = 256 * 2**20
"""Of the document of one tree: 200,000 files with long paths fit."""
_BATCH = 2**20
_SMALL_TREE = 2**20
_PIECE = 2**16
_NOTHING = memoryview(bytes(_PIECE))
_INCOMING = ".incoming"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:([0-9a-f]{2})([0-9a-f]{62})")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DirectoryBlobs:
    """Contents by digest, in a folder of this machine that only its owner reads."""

    def __init__(self, root: Path, allowance_of: AllowanceOf = unlimited) -> None:
        self._root = root
        self._incoming = root / _INCOMING
        self._quotas = StorageQuotas(allowance_of)

    async def open(self) -> None:
        """Make the folder, and remove what writers that died left behind."""
        await _in_thread(self._prepare)

    async def missing(self, namespace: str, digests: Iterable[str]) -> list[str]:
        """Those that are not here yet. Those that are count as used: a job that needs them is on its way."""
        places = [(digest, self._place(namespace, digest)) for digest in digests]
        return await _in_thread(lambda: [digest for digest, place in places if not _touch(place, self._incoming)])

    async def put(self, namespace: str, digest: str, chunks: AsyncIterator[bytes]) -> int:
        """Keep a content, if it is what the digest says; its size."""
        home = self._home(namespace)
        place = self._place(namespace, digest)
        await self._quotas.check(namespace, home, 1)
        return await self._put(namespace, digest, place, chunks, partial(self._quotas.check, namespace, home))

    async def _put(
        self,
        namespace: str,
        digest: str,
        place: Path,
        chunks: AsyncIterator[bytes],
        check: Callable[[int], Awaitable[None]],
    ) -> int:
        incoming: _Incoming | None = None
        batch = bytearray()
        try:
            async for chunk in chunks:
                batch += chunk
                if len(batch) >= _BATCH:
                    await check(len(batch) + (incoming.size if incoming else 0))
                    incoming = incoming or _Incoming(self._incoming)
                    await _in_thread(incoming.write, bytes(batch))
                    batch.clear()
            await check(len(batch) + (incoming.size if incoming else 0))
            incoming = incoming or _Incoming(self._incoming)
            # The last batch and all that follows it are one trip to a thread: small files are one trip in all.
            size = await _in_thread(incoming.finish, bytes(batch), lambda found: _checked(found, digest, place))
            self._quotas.added(namespace, size)
            return size
        finally:
            if incoming is not None:
                incoming.discard()

    async def put_file(self, namespace: str, source: Path | int, beside: int = 0) -> tuple[str, int]:
        """Keep a copy of a file that a run left, beside so many bytes of the same run; its digest and size.

        A link, device or pipe in its place is refused.
        """
        self._place(namespace, digest_of(b""))
        taken = disk_bytes(source)
        await self._quotas.check_alone(namespace, beside + taken)
        incoming = _Incoming(self._incoming)
        try:
            found = await _in_thread(self._copy, namespace, source, incoming)
            self._quotas.added(namespace, taken or found[1])
            return found
        finally:
            incoming.discard()

    def path(self, namespace: str, digest: str) -> Path:
        """Where a content lies on this machine."""
        place = self._place(namespace, digest)
        if not place.exists():
            raise NotFound(f"there is no content {digest} in {namespace}; upload it first")
        return place

    async def put_tree(self, namespace: str, tree: Tree, *, of_run: bool = False) -> str:
        """Keep a tree; its digest. That of a run is kept as its files are."""
        document = await _in_thread(tree.encode)
        if len(document) > MAX_TREE_BYTES:
            raise TooLarge(f"the tree has a document of more than {MAX_TREE_BYTES} bytes; send fewer files")
        digest = digest_of(document)
        if len(document) > _SMALL_TREE and not of_run:
            await self._quotas.check(namespace, self._home(namespace), len(document))
        # A small one is always kept: a job must be able to end, and say that nothing of it was kept.
        await self._put(namespace, digest, self._place(namespace, digest), _once(document), _any_size)
        return digest

    async def get_tree(self, namespace: str, digest: str) -> Tree:
        """Read a tree."""
        return await _in_thread(_read_tree, self.path(namespace, digest), digest)

    async def used(self, namespace: str) -> int:
        """Bytes that the tenant's contents take on the disk."""
        return await self._quotas.used(namespace, self._home(namespace))

    async def drop(self, namespace: str) -> None:
        """Remove everything of a tenant: out of sight at once, then for good."""
        await _in_thread(self._remove, self._home(namespace))
        self._quotas.removed(namespace)

    async def sweep(self, namespace: str, kept: AbstractSet[str], older_than: float) -> int:
        """Remove contents that nobody keeps and nobody used for so many seconds; how many."""
        home = self._home(namespace) / "sha256"
        removed = await _in_thread(_sweep, home, self._incoming, kept, time.time() - older_than)
        self._quotas.removed(namespace)
        return removed

    def _home(self, namespace: str) -> Path:
        if not _NAMESPACE.fullmatch(namespace):
            raise Invalid(f"{namespace[:80]!r} is not a namespace: use a-z, 0-9, - and .")
        return self._root / namespace

    def _place(self, namespace: str, digest: str) -> Path:
        match = _DIGEST.fullmatch(digest)
        if not match:
            raise Invalid(f"{digest[:80]!r} is not a digest; write sha256: and 64 digits 0-9, a-f")
        return self._home(namespace) / "sha256" / match[1] / match[2]

    def _prepare(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming.mkdir(mode=0o700, exist_ok=True)
        for left in self._incoming.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif not _is_locked(left):
                left.unlink(missing_ok=True)

    def _copy(self, namespace: str, source: Path | int, incoming: _Incoming) -> tuple[str, int]:
        # Not to wait for the other end of a pipe that somebody put there.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.dup(source) if isinstance(source, int) else os.open(source, flags)
        except FileNotFoundError:
            raise NotFound(f"there is no file {source}") from None
        except OSError as error:
            raise Invalid(f"{source} cannot be kept: {error.strerror}; only regular files can") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Invalid(f"{source} cannot be kept: it is not a regular file")
            while chunk := os.read(descriptor, _BATCH):
                incoming.write(chunk)
        finally:
            os.close(descriptor)
        size = incoming.finish(b"", lambda found: self._place(namespace, found))
        return incoming.digest, size

    def _remove(self, home: Path) -> None:
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        grave = self._incoming / f"dropped-{secrets.token_hex(8)}"
        try:
            home.rename(grave)
        except FileNotFoundError:
            return
        shutil.rmtree(grave)


class _Incoming:
    """A temporary file on its way to its place.

    Writing happens in threads that go on after their task was cancelled. `discard` never waits for them: it
    removes the file if no thread holds it, and otherwise leaves that to the thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._hasher = hashlib.sha256()
        self._lock = threading.Lock()
        self._over = False
        self.size = 0

    @property
    def digest(self) -> str:
        """Of what was written so far."""
        return f"sha256:{self._hasher.hexdigest()}"

    def write(self, data: bytes) -> None:
        """Append; in a thread."""
        try:
            with self._lock:
                self._append(data)
        finally:
            if self._over:
                self.discard()

    def finish(self, data: bytes, place_of: Callable[[str], Path]) -> int:
        """Append the last bytes and move the file to the place for its digest; in a thread."""
        try:
            with self._lock:
                self._append(data)
                if not self._over:
                    self._settle(place_of(self.digest))
        finally:
            self.discard()
        return self.size

    def discard(self) -> None:
        """Remove what is left; may be called at any time and again."""
        self._over = True
        if self._lock.acquire(blocking=False):
            try:
                self._remove()
            finally:
                self._lock.release()

    def _append(self, data: bytes) -> None:
        if self._over:
            return
        if self._descriptor < 0:
            self._create()
        self._hasher.update(data)
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            piece = view[start : start + _PIECE]
            if len(piece) == _PIECE and piece == _NOTHING:  # stays a hole: a sparse file claims any size
                self.size += _PIECE
                os.lseek(self._descriptor, self.size, os.SEEK_SET)
                continue
            self.size += len(piece)
            while piece:
                piece = piece[os.write(self._descriptor, piece) :]

    def _settle(self, place: Path) -> None:
        if self._path is None or _touch(place, self._folder):
            return
        os.ftruncate(self._descriptor, self.size)  # a hole at the end is not there by itself
        os.fsync(self._descriptor)
        _make_folders(place.parent, self._folder.parent)
        self._path.rename(place)
        self._path = None
        _sync_folder(place.parent)

    def _create(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while self._descriptor < 0:
            path = self._folder / secrets.token_hex(16)
            descriptor = os.open(path, flags, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                self._path, self._descriptor = path, descriptor
            else:  # taken for a leftover between its making and its locking
                os.close(descriptor)

    def _remove(self) -> None:
        path, self._path = self._path, None
        descriptor, self._descriptor = self._descriptor, -1
        if path is not None:
            path.unlink(missing_ok=True)
        if descriptor >= 0:
            os.close(descriptor)


def _touch(place: Path, incoming: Path) -> bool:
    """Note that a content is used; whether it is there. Never while it is being swept out."""
    if not place.exists():
        return False
    with _sweeping(incoming, fcntl.LOCK_SH):
        try:
            os.utime(place)
        except FileNotFoundError:
            return False
        return True


def _sweep(home: Path, incoming: Path, kept: AbstractSet[str], before: float) -> int:
    removed = 0
    for place in home.glob("??/*"):
        if f"sha256:{place.parent.name}{place.name}" in kept or place.stat().st_mtime >= before:
            continue
        with _sweeping(incoming, fcntl.LOCK_EX):
            if place.stat().st_mtime < before:  # looked at again now that nobody can begin to use it
                place.unlink()
                removed += 1
    return removed


@contextlib.contextmanager
def _sweeping(incoming: Path, how: int) -> Iterator[None]:
    """Held by whoever removes contents alone, and by those who use what is there together, in every process."""
    incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(incoming, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        if error.errno in _FULL:
            raise StoreUnavailable(
                "the disk that keeps files is full, nothing was stored; free some space and try again", retry_after=30
            ) from error
        raise StoreUnavailable(
            f"the folder that keeps files cannot be used: {error.strerror or error}; check its disk and its owner"
        ) from error


def _checked(found: str, digest: str, place: Path) -> Path:
    if found != digest:
        raise Invalid(f"the content is {found}, not {digest}; it changed or was damaged on its way, send it again")
    return place


def _make_folders(folder: Path, root: Path) -> None:
    made = []
    while folder != root and not folder.is_dir():
        made.append(folder)
        folder = folder.parent
    for new in reversed(made):
        new.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read_tree(path: Path, digest: str) -> Tree:
    if path.stat().st_size > MAX_TREE_BYTES:
        raise Invalid(f"{digest} is too large to be a tree")
    try:
        return Tree.model_validate_json(path.read_bytes())
    except ValidationError:
        raise Invalid(f"{digest} is not a tree; name the digest that storing the tree answered with") from None


async def _any_size(size: int) -> None:
    del size


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
