"""Preparing the folder of a run: made under another name, complete, then renamed into place.

Whoever renames first wins; another submission of the same run finds the folder and throws its own away.

Whoever opens the site takes it over: each control plane prepares runs in a folder of its own below `staging/`, which
the next one to open the site moves away before it looks for runs. One that was stopped meanwhile has nothing left to
rename when it wakes up, so it begins no run that has been, and was forgotten since.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus._kit.crashpoints import step
from isthmus.engines.base import FileSource, Stream
from isthmus.engines.collecting import remove_tree
from isthmus.errors import EngineRefused, Superseded
from isthmus.resources.work.trees import TreeFile, check_link, check_path

from .isolation import AccountIdentity
from .layout import Layout, RunFolder, reserve_record

_FICLONE = 0x40049409
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENER = re.compile(r"([^.]*)\.[0-9a-f]{12}")
_TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Contents:
    """What is written into a run's folder besides the files sent along."""

    spec: Mapping[str, Any]
    launcher: str
    script: str | None
    logs: Mapping[Stream, str] = field(default_factory=dict)
    """Under which names in the working folder the logs are seen too."""
    working_dir: str = ""
    append: bool = False
    """Whether what has such a name already stays before the output."""


class StagingArea:
    """Where one control plane prepares runs, until another opens the site."""

    def __init__(self, layout: Layout, owner: str) -> None:
        self._layout, self._owner = layout, owner
        self._path = layout.staging / f"{owner}.{secrets.token_hex(6)}"

    def take_over(self) -> None:
        """Move away what others prepare for the same owner, and what earlier ones left; then make our own."""
        for path in self._layout.staging.iterdir():
            name = path.name.removeprefix(".")
            opener = _OPENER.fullmatch(name)
            if name == "trial" or not path.is_dir() or (opener and opener[1] != self._owner):
                continue
            old = path.with_name(f".{name}")
            with contextlib.suppress(FileNotFoundError):
                step(path.rename, old)  # from now on, whoever made it finds nothing under its name
            remove_tree(old)
        step(self._path.mkdir, mode=0o700)

    @property
    def ours(self) -> bool:
        """Whether nobody has opened the site since."""
        return self._path.is_dir()

    def check(self) -> None:
        """Raise Superseded if somebody has."""
        if not self.ours:
            raise Superseded(f"Another control plane has opened the folder of runs {self._layout.root} since.")

    def new(self, name: str) -> Path:
        """A name in it that nothing has."""
        return self._path / f"{name}-{secrets.token_hex(6)}"


class StagedFolder:
    """One folder being prepared."""

    def __init__(
        self, area: StagingArea, final: RunFolder, identity: AccountIdentity, *, superuser: bool, open_path: bool
    ) -> None:
        self._final = final
        self._path = area.new(final.run_id)
        self._identity = identity
        self._owned = superuser
        # Without a sandbox the job's own account must be able to pass through to its folders.
        self._mode = 0o711 if open_path else 0o700

    def __enter__(self) -> StagedFolder:
        step(self._path.mkdir, mode=0o700)
        return self

    def __exit__(self, *_: object) -> None:
        remove_tree(self._path)

    def bring(self, files: FileSource | None) -> None:
        """Copy the files sent along, and take room for what must be written later."""
        folder = RunFolder(self._path)
        for path in (folder.work, folder.tmp, folder.launch):
            self._make_folder(path, 0o700)
        reserve_record(folder.started)
        reserve_record(folder.ended)
        reserve_record(folder.cancel)
        made = {folder.work}
        for file in files.files if files else ():
            target = folder.work / check_path(file.path)
            self._make_parents(target.parent, made)
            self._bring_one(file, target, files)

    def _make_parents(self, parent: Path, made: set[Path]) -> None:
        missing = []
        while parent not in made:
            missing.append(parent)
            parent = parent.parent
        for path in reversed(missing):
            self._make_folder(path, 0o755)
            made.add(path)

    def _bring_one(self, file: TreeFile, target: Path, files: FileSource | None) -> None:
        assert files is not None
        if file.link is not None:
            step(target.symlink_to, check_link(file.path, file.link))
            if self._owned:
                step(os.lchown, target, self._identity.uid, self._identity.gid)
            return
        out = step(os.open, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            step(copy_content, files.path_of(file), out)
            self._own(out, file.mode & 0o777)
        finally:
            os.close(out)

    def finish(self, contents: Contents) -> None:
        """Write the rest and make the run's folder appear; if another was quicker, leave it as it is."""
        folder = RunFolder(self._path)
        self._write(folder.launch / "launcher", contents.launcher, 0o400)
        if contents.script is not None:
            self._write(folder.launch / "script", contents.script, 0o500)
        for stream in ("stdout", "stderr") if contents.spec["separate_streams"] else ("stdout",):
            self._write(folder.log(stream), "", 0o600)
        for stream, name in contents.logs.items():
            self._show_log(folder.log(stream), f"{contents.working_dir or '.'}/{name}", append=contents.append)
        fd = step(os.open, folder.spec, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as spec:
            json.dump(contents.spec, spec)
        step(self._path.chmod, self._mode)
        try:
            step(self._path.rename, self._final.path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def _show_log(self, log: Path, name: str, *, append: bool) -> None:
        """Give a log a second name in the working folder. No link is followed: what was sent may hold any."""
        *folders, last = [part for part in name.split("/") if part not in ("", ".")] or [""]
        try:
            here = os.open(RunFolder(self._path).work, _FOLDER)
            try:
                for part in folders:
                    inner = self._enter(here, part)
                    os.close(here)
                    here = inner
                if append:
                    self._put_first(log, here, last)
                with contextlib.suppress(FileNotFoundError):
                    step(os.unlink, last, dir_fd=here)
                step(os.link, log, last, dst_dir_fd=here, follow_symlinks=False)
            finally:
                os.close(here)
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            raise EngineRefused(
                f"The output cannot be written to {name.removeprefix('./')!r} in the job's folder: {error.strerror}."
                " Choose another name."
            ) from error

    def _enter(self, here: int, part: str) -> int:
        """A folder in another, made if it is not there."""
        with contextlib.suppress(FileExistsError):
            step(os.mkdir, part, dir_fd=here)
            step(os.chmod, part, 0o755, dir_fd=here)
            if self._owned:
                step(os.chown, part, self._identity.uid, self._identity.gid, dir_fd=here, follow_symlinks=False)
        return os.open(part, _FOLDER, dir_fd=here)

    @staticmethod
    def _put_first(log: Path, here: int, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            before = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            with os.fdopen(before, "rb") as reader, log.open("ab") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)

    def _make_folder(self, path: Path, mode: int) -> None:
        step(path.mkdir, mode=mode)
        step(path.chmod, mode)
        if self._owned:
            step(os.chown, path, self._identity.uid, self._identity.gid)

    def _write(self, path: Path, text: str, mode: int) -> None:
        fd = step(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            content = memoryview(text.encode("utf-8", "surrogateescape"))
            while content:
                content = content[step(os.write, fd, content) :]
            self._own(fd, mode)
        finally:
            os.close(fd)

    def _own(self, fd: int, mode: int) -> None:
        if self._owned:
            step(os.fchown, fd, self._identity.uid, self._identity.gid)
        step(os.fchmod, fd, mode)


def copy_content(source: Path, out: int) -> None:
    """Copy a regular file, sharing blocks where the file system can; never a link to the original."""
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.ioctl(out, _FICLONE, descriptor)
            return
        info = os.fstat(descriptor)
        try:
            if info.st_blocks * 512 < info.st_size:
                _copy_data(descriptor, out, info.st_size)
            else:
                while os.copy_file_range(descriptor, out, 1 << 30):
                    pass
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.lseek(out, 0, os.SEEK_SET)
            with os.fdopen(os.dup(descriptor), "rb") as reader, os.fdopen(os.dup(out), "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
    finally:
        os.close(descriptor)


def _copy_data(source: int, out: int, size: int) -> None:
    """Copy what a sparse file holds; its holes stay holes."""
    os.ftruncate(out, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            raise
        at = os.lseek(source, start, os.SEEK_HOLE)
        while start < at:
            copied = os.copy_file_range(source, out, at - start, start, start)
            if not copied:
                return
            start += copied
