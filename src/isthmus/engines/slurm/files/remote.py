"""The cluster's file system over SSH: records as the site's own account, runs as the person whose they are.

A folder goes over in one piece, packed, and appears under its name when it is complete. Logs and small files are read
by SFTP; a log that is followed keeps its handle, so that reading on is one request. What makes a run's folder and its
record are one command each.

Every change passes `step_async`, so that tests can kill the process between any two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
import stat
import tarfile
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import IO, Any

from isthmus._kit.crashpoints import step_async
from isthmus.engines.base import FilePart, FileSink, FileSource, FolderListing
from isthmus.engines.browsing import folder_gone, no_such_file
from isthmus.engines.collecting import MAX_DEPTH, matching
from isthmus.engines.slurm.transports.commands import Done
from isthmus.engines.slurm.transports.shells import function
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable
from isthmus.resources.work.trees import check_link, check_path

from .base import LOGS, MOST_NEWS, WORKED_WITH, LaunchFile, LogFile
from .remote_browsing import list_remote, read_remote
from .remote_rounds import RemoteRounds

_HANDLES = 64
# Fixed texts; what varies comes as arguments.
# What comes last must have come: where an archive was cut off between two files, tar takes that for its end.
_UNPACK = (
    'umask 077; test -O "$2" && test -d "$2" && test ! -L "$2" && return; '
    'mkdir "$1" && tar -xpmf - -C "$1" && rm -- "$1/.whole" && mv -T "$1" "$2" || { rm -rf -- "$1"; return 1; }'
)
# Only where something is in the way, such as a folder that its owner may not write to, is it removed one by one.
_REMOVE = (
    'rm -rf -- "$@" 2>/dev/null && return; '
    'for p; do test -e "$p" || continue; chmod -R u+rwX -- "$p" 2>/dev/null; rm -rf -- "$p"; done'
)
# What starts the run first; and what may be left of a folder whose sending was cut off.
_FORGET = f'set -- "$1/launch" "$1" "${{1%/*}}/.${{1##*/}}-"*; {_REMOVE}'
_FOLDERS = (
    'umask 077; mkdir -p -- "$1"; chmod 711 -- "$1"; mkdir -p -- "$1/active" "$1/over" "$1/staging"; '
    # Under another name until its mode is right: a folder that persons cannot enter would be taken for ready.
    'make() { test -d "$1" || { mkdir -- "$1-$$" && chmod $2 -- "$1-$$" && mv -T -- "$1-$$" "$1"; }; }; '
    'make "$1/runs" 1777 && make "$1/news" 1733'
)
_TAKE_OVER = (
    'umask 077; for old in "$1/staging/$2".*; do '
    'test ! -d "$old" || mv -T -- "$old" "$1/staging/.${old##*/}"; done; '
    'rm -rf -- "$1/staging/.$2".* && mkdir -- "$3"'
)


class RemoteFiles:
    """`RunFiles` over SSH."""

    def __init__(self, folder: str, ssh: SshConnections, owner: str = "site") -> None:
        self._root, self._ssh = folder, ssh
        self._owner, self._staging = owner, f"{folder}/staging/{owner}.{secrets.token_hex(6)}"
        self._rounds = RemoteRounds(folder, self._staging, ssh)
        self._handles: dict[LogFile, Any] = {}
        self._moving: dict[str, tuple[int, int]] = {}
        self._stuck: set[str] = set()

    async def open(self) -> None:
        """Make the folders, and take them over."""
        await self._ssh.open()
        await step_async(self._sh, _FOLDERS, self._root, user=None)
        await step_async(self._sh, _TAKE_OVER, self._root, self._owner, self._staging, user=None)

    async def ours(self) -> bool:
        """Whether our own folder for new records is still there."""
        async with self._ssh.files(self._ssh.service) as sftp:
            try:
                return Path(self._staging).name in await sftp.listdir(f"{self._root}/staging")
            except self._missing():
                raise SiteUnavailable(f"The site's folder {self._root} is not there.") from None

    async def open_to_read(self) -> None:
        """Connect."""
        await self._ssh.open()

    async def close(self) -> None:
        """Close the connections."""
        self._handles.clear()
        await self._rounds.close()
        await self._ssh.close()

    def moved(self, run_id: str) -> tuple[int, int] | None:
        """How far the files of a run are."""
        return self._moving.get(run_id)

    def folder(self, run_id: str) -> str:
        """Where a run is."""
        return f"{self._root}/runs/{run_id}"

    async def _sh(self, text: str, *words: str, user: str | None, stdin: bytes = b"") -> None:
        self._check(await self._ssh.call(text, *words, user=user, stdin=stdin))

    def _check(self, done: Done) -> None:
        if done.code:
            said = done.err.strip()[:300] or f"code {done.code}"
            raise SiteUnavailable(f"The site's folder {self._root} cannot be used: {said}.")

    # Records

    async def list_records(self) -> tuple[set[str], set[str]]:
        """The runs that are not over, and those that are."""
        async with self._ssh.files(self._ssh.service) as sftp:
            # In this order: a record that moves meanwhile is seen in one of the two places at least.
            active, over = [
                set(await sftp.listdir(f"{self._root}/{place}")) - {".", ".."} for place in ("active", "over")
            ]
            for run_id in active & over:
                await self._unlink(sftp, f"{self._root}/active/{run_id}")  # of one killed between the two
        return active - over, over

    async def read_record(self, run_id: str) -> bytes | None:
        """The record of a run."""
        # What is over stays over, whatever else there is. Looked for twice, because a record may move in between.
        for place in ("over", "active", "over"):
            content = await self._read(self._ssh.service, f"{self._root}/{place}/{run_id}", 0, 1 << 20)
            if content is not None:
                return content
        return None

    async def read_records(self, run_ids: Collection[str]) -> dict[str, bytes]:
        """The records of many runs, in one command: asked for one by one, a thousand take minutes on a slow line."""
        done = await self._ssh.call('( cd "$1/active" && grep -arH "" . || test $? -eq 1 )', self._root, user=None)
        self._check(done)
        found: dict[str, bytes] = {}
        for line in done.out.split("\n"):
            name, _, content = line.removeprefix("./").partition(":")
            if name in run_ids:
                found[name] = found.get(name, b"") + content.encode() + b"\n"
        return found

    # Word that runs left

    async def news(self) -> set[str]:
        """The names in the folder, which are removed."""
        async with self._ssh.files(self._ssh.service) as sftp:
            listed = set(await sftp.listdir(f"{self._root}/news")) - {".", ".."} - self._stuck
            names = sorted(listed)[:MOST_NEWS]
            taken = await asyncio.gather(*(self._take(sftp, name) for name in names))
        return {name for name, is_taken in zip(names, taken, strict=True) if is_taken}

    async def _take(self, sftp: Any, name: str) -> bool:
        try:
            await step_async(sftp.remove, f"{self._root}/news/{name}")
        except self._missing():
            return False
        except self._sftp_error():
            # A folder, which has no business here, and may not be ours to remove: it is not looked at again.
            if len(self._stuck) < MOST_NEWS:
                self._stuck.add(name)
            return False
        return True

    def _sftp_error(self) -> type[Exception]:
        import asyncssh

        return asyncssh.SFTPError

    async def create_record(self, run_id: str, content: bytes) -> bool:
        """Make a record; False if there is one."""
        return await self._rounds.create_record(run_id, content)

    async def write_record(self, run_id: str, content: bytes) -> bool:
        """Change the record of a run that is not over: a line more. One that is not there is not made again."""
        if await self._rounds.append(run_id, content, ends=False):
            return True
        async with self._ssh.files(self._ssh.service) as sftp:
            return await self._append_line(sftp, run_id, content)

    async def _append_line(self, sftp: Any, run_id: str, content: bytes) -> bool:
        path = f"{self._root}/active/{run_id}"
        try:
            async with await step_async(sftp.open, path, self._append(), encoding=None) as file:
                await step_async(file.write, b"\n" + content)
        except self._missing():
            return await self._not_over(sftp, run_id)
        return True

    async def _not_over(self, sftp: Any, run_id: str) -> bool:
        """False: somebody else moved the record. A record that is nowhere says nothing about its run."""
        if await sftp.exists(f"{self._root}/over/{run_id}"):
            return False
        raise SiteUnavailable(f"The record of run {run_id} is no longer in {self._root}.")

    def _append(self) -> int:
        from asyncssh import FXF_APPEND, FXF_WRITE

        return FXF_WRITE | FXF_APPEND

    def _missing(self) -> type[Exception]:
        import asyncssh

        return asyncssh.SFTPNoSuchFile

    async def finish_record(self, run_id: str, content: bytes) -> bool:
        """The run is over: the last line, and the record moves."""
        if await self._rounds.append(run_id, content, ends=True):
            return True
        async with self._ssh.files(self._ssh.service) as sftp:
            if not await self._append_line(sftp, run_id, content):
                return False
            try:
                await step_async(sftp.posix_rename, f"{self._root}/active/{run_id}", f"{self._root}/over/{run_id}")
            except self._missing():
                return await self._not_over(sftp, run_id)
        return True

    async def drop_record(self, run_id: str) -> None:
        """Forget the run."""
        async with self._ssh.files(self._ssh.service) as sftp:
            # In this order: what is over must not become active again.
            for place in ("active", "over"):
                await self._unlink(sftp, f"{self._root}/{place}/{run_id}")

    async def _unlink(self, sftp: Any, path: str) -> None:
        with contextlib.suppress(self._missing()):
            await step_async(sftp.remove, path)

    # The run's folder

    async def begin(
        self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None, record: bytes
    ) -> bool:
        """Make the folder, then the record."""
        await self._prepare(run_id, user, launch, source)
        return await self.create_record(run_id, record)

    async def _prepare(
        self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None
    ) -> None:
        """Send everything in one piece, and let it appear when it is complete."""
        if source is None and await self._rounds.stage(run_id, user, launch):
            return
        places = f"{self._root}/runs/.{run_id}-{secrets.token_hex(6)}", self.folder(run_id)
        with tempfile.TemporaryFile() as packed:
            await asyncio.to_thread(_pack, packed, launch, source)
            count = self._counter(run_id, packed.tell())
            packed.seek(0)
            try:
                command = function(_UNPACK, places)
                self._check(await step_async(self._ssh.send, command, user=user, stdin=packed, sent=count))
            finally:
                self._moving.pop(run_id, None)

    def _counter(self, run_id: str, total: int) -> Callable[[int], None]:
        """Counts what goes over."""

        def count(size: int) -> None:
            done, _ = self._moving.get(run_id, (0, total))
            self._moving[run_id] = (done + size, total)

        return count

    async def bar(self, run_id: str, user: str) -> None:
        """Leave word that the run must not begin."""
        await step_async(self._sh, 'test -d "$1" || return 0; : >"$1/barred"', self.folder(run_id), user=user)

    async def read(self, file: LogFile, offset: int = 0, size: int = 65536) -> bytes | None:
        """Part of a file of the run."""
        path = f"{self.folder(file.run_id)}/{file.name}"
        if file.name == "ended" and (word := await self._rounds.read_small(file.run_id, file.user, file.name)):
            return word[offset : offset + size]
        if file.name not in LOGS:
            return await self._read(file.user, path, offset, size)
        try:
            async with self._ssh.files(file.user) as sftp:
                held, client = self._handles.pop(file, (None, None))
                if held is None or client is not sftp:
                    if not await _is_plain(sftp, path):
                        return None
                    held = await sftp.open(path, "rb")
                self._handles[file] = (held, sftp)
                while len(self._handles) > _HANDLES:
                    oldest, _ = self._handles.pop(next(iter(self._handles)))
                    await oldest.close()
                content: bytes = await held.read(size, offset)
                return content
        except FileNotFoundError:
            return None

    async def _read(self, user: str, path: str, offset: int, size: int) -> bytes | None:
        try:
            async with self._ssh.files(user) as sftp:
                if not await _is_plain(sftp, path):
                    return None
                async with sftp.open(path, "rb") as file:
                    content: bytes = await file.read(size, offset)
                    return content
        except FileNotFoundError:
            return None

    async def sizes(self, files: Sequence[LogFile]) -> list[int]:
        """How long files are; all asked for at once."""
        return list(await asyncio.gather(*(self._size(file) for file in files)))

    async def _size(self, file: LogFile) -> int:
        try:
            async with self._ssh.files(file.user) as sftp:
                found = await sftp.stat(f"{self.folder(file.run_id)}/{file.name}")
                return int(found.size or 0)
        except FileNotFoundError:
            return 0

    # What the run works on, and what it left

    async def list_work(self, run_id: str, user: str, most: int) -> FolderListing:
        """What is in the folder where it runs."""
        try:
            async with self._ssh.files(user) as sftp:
                return await list_remote(sftp, f"{self.folder(run_id)}/work", most)
        except FileNotFoundError:
            raise folder_gone() from None

    async def read_work(self, run_id: str, user: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a plain file there."""
        try:
            async with self._ssh.files(user) as sftp:
                return await read_remote(sftp, f"{self.folder(run_id)}/work", path, offset, size)
        except FileNotFoundError:
            raise no_such_file(path) from None

    async def collect(self, run_id: str, user: str, patterns: Sequence[str], sink: FileSink, limit: int) -> list[str]:
        """Bring back what matches, as the person: nothing is read that is not theirs to read."""
        skipped: list[str] = []
        found: list[tuple[str, Any]] = []
        work = f"{self.folder(run_id)}/work"
        async with self._ssh.files(user) as sftp:
            await self._walk(sftp, work, "", 0, found, skipped)
            meant = set(await asyncio.to_thread(matching, [path for path, _ in found], patterns))
            wanted = [item for item in found if item[0] in meant]
            count = self._counter(run_id, sum(int(attributes.size or 0) for _, attributes in wanted))
            try:
                for path, attributes in sorted(wanted, key=lambda item: item[0]):
                    size = await self._bring(sftp, work, path, attributes, sink, limit, skipped, count)
                    limit -= size
            finally:
                self._moving.pop(run_id, None)
        return skipped

    async def _walk(
        self, sftp: Any, top: str, prefix: str, depth: int, found: list[tuple[str, Any]], skipped: list[str]
    ) -> None:
        folder = f"{top}/{prefix}".rstrip("/")
        try:
            entries = [entry async for entry in sftp.scandir(folder)]
        except self._denied() as error:
            if not prefix:
                raise
            skipped.append(f"{prefix} was not kept: {error}.")
            return
        for entry in entries:
            if entry.filename in (".", ".."):
                continue
            path = f"{prefix}{entry.filename}"
            if S_ISDIR(entry.attrs.permissions or 0):
                if depth < MAX_DEPTH:
                    await self._walk(sftp, top, f"{path}/", depth + 1, found, skipped)
            else:
                found.append((path, entry.attrs))

    def _denied(self) -> type[Exception]:
        import asyncssh

        return asyncssh.SFTPPermissionDenied

    async def _bring(
        self,
        sftp: Any,
        work: str,
        path: str,
        attributes: Any,
        sink: FileSink,
        left: int,
        skipped: list[str],
        count: Callable[[int], None],
    ) -> int:
        mode, size = attributes.permissions or 0, int(attributes.size or 0)
        if S_ISLNK(mode):
            target = await sftp.readlink(f"{work}/{path}")
            try:
                check_link(path, target)
            except ValueError:
                skipped.append(f"{path} was not kept: it is a link to a place outside the job's folder.")
                return 0
            await sink.add_link(path, target)
            return 0
        if not S_ISREG(mode):
            skipped.append(f"{path} was not kept: it is not a plain file.")
            return 0
        if size > left:
            skipped.append(f"{path} was not kept: with it the run's outputs exceed what a run may bring back.")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "file"
            arrived = 0

            def progress(source: bytes, target: bytes, done: int, total: int) -> None:
                nonlocal arrived
                del source, target, total
                count(done - arrived)
                arrived = done

            await sftp.get(f"{work}/{path}", str(local), follow_symlinks=False, progress_handler=progress)
            await sink.add(path, local, mode & 0o777)
        return size

    async def tidy(self, run_id: str, user: str) -> None:
        """Remove what the program worked with."""
        if await self._rounds.tidy(run_id, user):
            return
        folder = self.folder(run_id)
        await step_async(self._sh, _REMOVE, *(f"{folder}/{name}" for name in WORKED_WITH), user=user)

    async def remove(self, run_id: str, user: str) -> None:
        """Remove the run's folder."""
        for name in LOGS:
            self._handles.pop(LogFile(run_id, user, name), None)
        await step_async(self._sh, _FORGET, self.folder(run_id), user=user)


def _pack(out: IO[bytes], launch: Mapping[str, LaunchFile], source: FileSource | None) -> None:
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_folder("work"))
        for name, file in launch.items():
            _add(tar, name, file.text.encode("utf-8", "surrogateescape"), file.mode)
        for name in sorted(LOGS):
            _add(tar, name, b"", 0o600)
        made: set[str] = set()
        for entry in source.files if source else ():
            path = check_path(entry.path)
            parts = path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                parent = "/".join(parts[:depth])
                if parent not in made:
                    made.add(parent)
                    tar.addfile(_folder(f"work/{parent}"))
            info = tarfile.TarInfo(f"work/{path}")
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, check_link(entry.path, entry.link)
                tar.addfile(info)
                continue
            assert source is not None
            with source.path_of(entry).open("rb") as content:
                info.size, info.mode = entry.size, entry.mode & 0o777
                tar.addfile(info, content)
        _add(tar, ".whole", b"", 0o600)


def _folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o700
    return info


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


async def _is_plain(sftp: Any, path: str) -> bool:
    """Whether there is a plain file. A pipe would hold up its reader, and with it all that is asked as this person."""
    return stat.S_ISREG((await sftp.lstat(path)).permissions or 0)
