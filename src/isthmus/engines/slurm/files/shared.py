"""The cluster's file system, seen from this machine.

As root, everything of a run is made to belong to its person, and what a person may have changed since is opened step by
step without following links: what root reads for somebody must be that person's own file.

A burst of jobs is a burst of small files: each run has as few as it can, and their paths are plain texts.

Every change passes `step`, so that tests can kill the process between any two of them.
"""
# ruff: noqa: PTH110 - a Path costs more than the call it is made for

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from isthmus._kit.crashpoints import step
from isthmus.engines.base import FilePart, FileSink, FileSource, FolderListing
from isthmus.engines.browsing import list_folder, read_part
from isthmus.engines.collecting import collect, remove_tree
from isthmus.engines.slurm.transports.command_line import account
from isthmus.errors import SiteUnavailable
from isthmus.resources.work.trees import check_link, check_path

from .base import LOGS, MOST_NEWS, WORKED_WITH, LaunchFile, LogFile
from .trips import Trips

T = TypeVar("T")
THREADS = 12
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDERS = ((".", 0o711), ("active", 0o700), ("over", 0o700), ("staging", 0o700), ("runs", 0o711), ("news", 0o1733))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class SharedFiles:
    """`RunFiles` on a folder of this machine."""

    def __init__(self, folder: str, owner: str = "site") -> None:
        self._root = Path(folder)
        self._owner_name, self._staging = owner, f"{folder}/staging/{owner}.{secrets.token_hex(6)}"
        self._news = f"{folder}/news"
        self._superuser = os.geteuid() == 0
        self._uids: dict[str, tuple[int, int]] = {}
        self._moving: dict[str, tuple[int, int]] = {}
        # Of its own: a network file system that hangs must not keep everybody else from theirs.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="slurm-files")
        self._trips = Trips(self._threads)
        self._looks = Trips(self._threads)
        """What runs left is read together, and does not wait for a burst of runs that are staged."""

    async def open(self) -> None:
        """Make the folders, and take them over."""
        await self._do(self._make_folders)
        await self._do(self._take_over)

    async def open_to_read(self) -> None:
        """See whether the folders are there."""
        if not await self._do((self._root / "runs").is_dir):
            raise SiteUnavailable(f"The site's folder {self._root} is not there.")

    def _make_folders(self) -> None:
        for name, mode in _FOLDERS:
            path = (self._root / name).absolute()
            if not path.is_dir():
                step(path.parent.mkdir, parents=True, exist_ok=True)
                self._make_open(path, mode)

    def _take_over(self) -> None:
        staging = self._root / "staging"
        for name in _names(staging):
            old = staging / f".{name.removeprefix('.')}"
            if not old.name.startswith(f".{self._owner_name}."):
                continue
            with contextlib.suppress(FileNotFoundError):
                step(os.rename, staging / name, old)  # from now on, whoever made it finds nothing under its name
            remove_tree(old)
        step(os.mkdir, self._staging, 0o700)

    async def ours(self) -> bool:
        """Whether our own folder for new records is still there."""
        return Path(self._staging).name in await self._do(_names, self._root / "staging")

    @staticmethod
    def _make_open(path: Path, mode: int) -> None:
        """Under another name until its mode is right: a folder that persons cannot enter would be taken for ready."""
        new = f"{path.parent}/.{path.name}-{secrets.token_hex(6)}"
        step(os.mkdir, new)
        step(os.chmod, new, mode)
        try:
            step(os.rename, new, path)
        except OSError as error:
            step(os.rmdir, new)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise

    async def close(self) -> None:
        """Let go of the threads; what hangs is not waited for."""
        await self._trips.close()
        await self._looks.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def moved(self, run_id: str) -> tuple[int, int] | None:
        """How far the files of a run are."""
        return self._moving.get(run_id)

    def folder(self, run_id: str) -> str:
        """Where a run is."""
        return f"{self._root}/runs/{run_id}"

    # Records

    async def list_records(self) -> tuple[set[str], set[str]]:
        """The runs that are not over, and those that are."""
        return await self._do(self._list_records)

    def _list_records(self) -> tuple[set[str], set[str]]:
        # In this order: a record that moves meanwhile is seen in one of the two places at least.
        active, over = _names(self._root / "active"), _names(self._root / "over")
        for run_id in active & over:
            self._unlink(f"{self._root}/active/{run_id}")  # left by whoever was killed between the two
        return active - over, over

    async def read_record(self, run_id: str) -> bytes | None:
        """The record of a run."""
        return await self._do(self._read_record, run_id)

    def _read_record(self, run_id: str) -> bytes | None:
        # What is over stays over, whatever else there is. Looked for twice, because a record may move in between.
        for place in ("over", "active", "over"):
            with contextlib.suppress(FileNotFoundError):
                return (self._root / place / run_id).read_bytes()
        return None

    async def read_records(self, run_ids: Collection[str]) -> dict[str, bytes]:
        """The records of many runs, in one go."""
        return await self._do(self._read_records, run_ids)

    def _read_records(self, run_ids: Collection[str]) -> dict[str, bytes]:
        found = {run_id: self._read_record(run_id) for run_id in run_ids}
        return {run_id: content for run_id, content in found.items() if content is not None}

    # Word that runs left

    async def news(self) -> set[str]:
        """The names in the folder, which are removed."""
        return await self._do(self._take_news)

    def _take_news(self) -> set[str]:
        with os.scandir(self._news) as entries:
            names = [entry.name for entry in islice(entries, MOST_NEWS)]
        return {name for name in names if self._take(f"{self._news}/{name}")}

    @staticmethod
    def _take(path: str) -> bool:
        """Remove a name; whether it meant something. Whatever it is, it is neither opened nor followed."""
        try:
            step(os.unlink, path)
        except FileNotFoundError:
            return False
        except OSError:
            remove_tree(Path(path))
            return False
        return True

    async def create_record(self, run_id: str, content: bytes) -> bool:
        """Make a record; False if there is one."""
        return await self._quickly(self._create_record, run_id, content)

    def _create_record(self, run_id: str, content: bytes) -> bool:
        active, over = f"{self._root}/active/{run_id}", f"{self._root}/over/{run_id}"
        if os.path.exists(over):
            return False
        new = self._temporary(run_id, content)
        try:
            # A link appears whole, and only once.
            step(os.link, new, active)
        except FileExistsError:
            return False
        finally:
            step(os.unlink, new)
        if os.path.exists(over):  # another one made a record and ended it since we looked
            self._unlink(active)
            return False
        return True

    async def write_record(self, run_id: str, content: bytes) -> bool:
        """Change the record of a run that is not over: a line more, which costs no new file."""
        return await self._quickly(self._write_record, run_id, content)

    def _write_record(self, run_id: str, content: bytes) -> bool:
        try:
            fd = os.open(f"{self._root}/active/{run_id}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._not_over(run_id)
        try:
            _write_all(fd, b"\n" + content)
        finally:
            os.close(fd)
        return True

    async def finish_record(self, run_id: str, content: bytes) -> bool:
        """The run is over: the last line, and the record moves."""
        return await self._quickly(self._finish_record, run_id, content)

    def _finish_record(self, run_id: str, content: bytes) -> bool:
        if not self._write_record(run_id, content):
            return False
        try:
            step(os.rename, f"{self._root}/active/{run_id}", f"{self._root}/over/{run_id}")
        except FileNotFoundError:
            return self._not_over(run_id)
        return True

    def _not_over(self, run_id: str) -> bool:
        """False: somebody else moved the record. A record that is nowhere says nothing about its run."""
        if os.path.exists(f"{self._root}/over/{run_id}"):
            return False
        raise SiteUnavailable(f"The record of run {run_id} is no longer in {self._root}.")

    async def drop_record(self, run_id: str) -> None:
        """Forget the run."""
        await self._do(self._drop_record, run_id)

    def _drop_record(self, run_id: str) -> None:
        # In this order: what is over must not become active again.
        for place in ("active", "over"):
            self._unlink(f"{self._root}/{place}/{run_id}")

    @staticmethod
    def _unlink(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            step(os.unlink, path)

    def _temporary(self, run_id: str, content: bytes) -> str:
        new = f"{self._staging}/{run_id}-{secrets.token_hex(6)}"
        fd = step(os.open, new, _NEW, 0o600)
        try:
            _write_all(fd, content)
        finally:
            os.close(fd)
        return new

    # The run's folder

    async def begin(
        self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None, record: bytes
    ) -> bool:
        """Make the folder, then the record; one trip to a thread for both."""
        do = self._quickly if source is None else self._do
        return await do(self._begin, run_id, user, launch, source, record)

    def _begin(
        self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None, record: bytes
    ) -> bool:
        self._prepare(run_id, user, launch, source)
        return self._create_record(run_id, record)

    def _prepare(self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None) -> None:
        final = f"{self._root}/runs/{run_id}"
        if os.path.exists(final):
            return
        owner = self._owner(user)
        new = f"{self._staging}/{run_id}-{secrets.token_hex(6)}"
        there = False
        try:
            self._make_folder(new, owner)
            self._make_folder(f"{new}/work", owner)
            for name, file in launch.items():
                self._write(f"{new}/{name}", file.text.encode("utf-8", "surrogateescape"), file.mode, owner)
            if source is not None:
                self._bring(run_id, Path(new, "work"), source, owner)
            try:
                step(os.rename, new, final)
                there = True
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            self._moving.pop(run_id, None)
            if not there:
                remove_tree(Path(new))

    def _bring(self, run_id: str, work: Path, source: FileSource, owner: tuple[int, int]) -> None:
        made = {work}
        done, total = 0, sum(file.size for file in source.files)
        for file in source.files:
            target = work / check_path(file.path)
            missing = [p for p in (target.parent, *target.parent.parents) if p not in made and work in p.parents]
            for parent in reversed(missing):
                self._make_folder(parent, owner)
                made.add(parent)
            if file.link is not None:
                step(os.symlink, check_link(file.path, file.link), target)
                if self._superuser:
                    step(os.lchown, target, *owner)
                continue
            step(shutil.copyfile, source.path_of(file), target)
            if self._superuser:
                step(os.chown, target, *owner)
            step(target.chmod, file.mode & 0o777)
            done += file.size
            self._moving[run_id] = (done, total)

    def _make_folder(self, path: Path | str, owner: tuple[int, int]) -> None:
        step(os.mkdir, path, 0o700)
        if self._superuser:
            step(os.chown, path, *owner)

    def _write(self, path: str, content: bytes, mode: int, owner: tuple[int, int]) -> None:
        fd = step(os.open, path, _NEW, mode)
        try:
            _write_all(fd, content)
            if self._superuser:
                step(os.fchown, fd, *owner)
        finally:
            os.close(fd)

    async def bar(self, run_id: str, user: str) -> None:
        """Leave word that the run must not begin."""
        del user
        await self._do(self._bar, run_id)

    def _bar(self, run_id: str) -> None:
        with contextlib.suppress(FileNotFoundError, FileExistsError), self._inside(run_id) as folder:
            os.close(step(os.open, "barred", _NEW | os.O_NOFOLLOW, 0o644, dir_fd=folder))

    # What the run left

    async def read(self, file: LogFile, offset: int = 0, size: int = 65536) -> bytes | None:
        """Part of a file of the run."""
        if file.name in LOGS:
            return await self._do(self._read, file, offset, size)
        return await self._on_trip(self._looks, self._read, file, offset, size)

    def _read(self, file: LogFile, offset: int, size: int) -> bytes | None:
        try:
            with self._inside(file.run_id) as folder:
                fd = os.open(file.name, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # somebody put a link there: it is not the file we mean
                return None
            raise
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != self._owner(file.user)[0]:
                return None
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)

    async def sizes(self, files: Sequence[LogFile]) -> list[int]:
        """How long files are."""
        if len(files) == 1:  # of one run that ended: there may be many such
            return [await self._on_trip(self._looks, self._size, files[0])]
        return await self._do(lambda: [self._size(file) for file in files])

    def _size(self, file: LogFile) -> int:
        # Opened and not only looked at: on a network file system opening asks the server, a look may be old.
        try:
            with self._inside(file.run_id) as folder:
                fd = os.open(file.name, _FILE, dir_fd=folder)
        except OSError:
            return 0
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _inside(self, run_id: str) -> Iterator[int]:
        fd = os.open(self._root / "runs" / run_id, _FOLDER)
        try:
            yield fd
        finally:
            os.close(fd)

    async def list_work(self, run_id: str, user: str, most: int) -> FolderListing:
        """What is in the folder where it runs."""
        del user
        return await self._do(list_folder, self._work(run_id), most)

    async def read_work(self, run_id: str, user: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a plain file there."""
        return await self._do(lambda: read_part(self._work(run_id), path, self._owner(user)[0], offset, size))

    def _work(self, run_id: str) -> Path:
        return self._root / "runs" / run_id / "work"

    async def collect(self, run_id: str, user: str, patterns: Sequence[str], sink: FileSink, limit: int) -> list[str]:
        """Bring back what matches."""
        return await collect(self._work(run_id), self._owner(user)[0], patterns, sink, limit)

    async def tidy(self, run_id: str, user: str) -> None:
        """Remove what the program worked with; folders that are not empty, which may take long, on a thread apart."""
        del user
        if not await self._on_trip(self._looks, self._tidy, run_id, False):
            await self._do(self._tidy, run_id, True)

    def _tidy(self, run_id: str, whole: bool) -> bool:
        """Whether nothing is left."""
        with contextlib.suppress(FileNotFoundError), self._inside(run_id) as folder:
            for name in WORKED_WITH:
                try:
                    step(os.unlink, name, dir_fd=folder)
                except FileNotFoundError:
                    continue
                except IsADirectoryError:
                    if whole:
                        remove_tree(self._root / "runs" / run_id / name)
                    elif not _remove_empty(name, folder):
                        return False
        return True

    async def remove(self, run_id: str, user: str) -> None:
        """Remove the run's folder."""
        del user
        await self._do(self._remove, run_id)

    def _remove(self, run_id: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._inside(run_id) as folder:
            step(os.unlink, "launch", dir_fd=folder)
        remove_tree(self._root / "runs" / run_id)

    def _owner(self, user: str) -> tuple[int, int]:
        if not self._superuser:
            return os.geteuid(), os.getegid()
        if user not in self._uids:
            entry = account(user)
            self._uids[user] = (entry.pw_uid, entry.pw_gid)
        return self._uids[user]

    async def _do(self, call: Callable[..., T], *args: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
        except OSError as error:
            raise self._unusable(error) from error

    async def _quickly(self, call: Callable[..., T], *args: object) -> T:
        """What takes no time to speak of goes together with others like it."""
        return await self._on_trip(self._trips, call, *args)

    async def _on_trip(self, trips: Trips, call: Callable[..., T], *args: object) -> T:
        try:
            return await trips.make(partial(call, *args))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> SiteUnavailable:
        return SiteUnavailable(f"The site's folder {self._root} cannot be used: {error}.")


def _names(folder: Path) -> set[str]:
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries}


def _remove_empty(name: str, folder: int) -> bool:
    """Remove a folder, unless there is something in it."""
    try:
        step(os.rmdir, name, dir_fd=folder)
    except OSError:
        return False
    return True


def _write_all(fd: int, content: bytes) -> None:
    """On a disk that is nearly full a write may take a part only, and says so only when it is asked for the rest."""
    while content:
        content = content[step(os.write, fd, content) :]
