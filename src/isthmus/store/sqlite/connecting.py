"""Files, locks, connections and errors of SQLite.

One process at a time: an exclusive `flock` on a file beside the database, which holds the owner's pid. The kernel
frees it with the process, however that ends. The database is in WAL mode with `synchronous=FULL`: a commit is on
disk before it returns, readers never wait for writers.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from isthmus.errors import IsthmusError, Misconfigured, StoreUnavailable

log = logging.getLogger(__name__)

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DENIED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another program holds the database."""
    return _primary_code(error) in _BUSY


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk has no space left."""
    return _primary_code(error) == sqlite3.SQLITE_FULL


def no_space() -> StoreUnavailable:
    """What is said to whoever wants to keep something new."""
    return StoreUnavailable(
        "there is no space left for the database; free some on its disk (isthmus delete works), then try again"
    )


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translated(error: sqlite3.Error, path: Path) -> IsthmusError:
    """SQLite's error in our words, with what to do about it. Where the database lies is for the log: anybody who asks
    the API may read the message."""
    log.warning("store.failed database=%s error=%s", path, error)
    code = _primary_code(error)
    if code in _BUSY:
        return StoreUnavailable("the database is locked by another program; end that program, then try again")
    if is_full(error):
        return no_space()
    if code in _BROKEN:
        return StoreUnavailable("the database is damaged; stop the server and restore a backup")
    if code in _DENIED:
        return StoreUnavailable("the database cannot be written; check its permissions and its disk")
    return StoreUnavailable("the database failed; the server's log says how")


@contextmanager
def translating(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, except those that report a mistake in a statement or a value."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError):
        raise
    except sqlite3.Error as error:
        raise translated(error, path) from error


class FileLock:
    """The right to use a database, held by one process."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take it; raises Misconfigured naming the process that has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            database = self._path.with_suffix("")
            raise Misconfigured(
                f"the database {database} is in use by process {owner}; stop that one first, give this one "
                "another data folder, or use PostgreSQL for several servers"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def prepare_file(path: Path) -> None:
    """Make the file, readable by its owner only, and make sure that its name survives a power loss."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        _sync_folder(path.parent)
    except OSError as error:
        raise Misconfigured(
            f"the database {path} cannot be made: {error.strerror}; check the folder and its permissions"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -32768")  # 32 MB: a batch does not spill before its commit
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads; may be handed from thread to thread."""
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("PRAGMA cache_size = -16384")
    return connection
