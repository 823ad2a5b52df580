"""Where everything of a run lies, and how its records are written.

```
root/
  keeper-<version>.{lock,sock,log}   the keeper
  staging/<owner>.<token>/           of the control plane that opened the site last; see `staging`
    <run id>-<random>/               a run being prepared; renamed to runs/ when complete
  units/<class>/<unit>               which run has which unit of a device
  runs/<run id>/
    spec.json    the plan that the supervisor follows       lock      held by the supervisor while it lives
    started      written before the program is started      ended     written when everything of it is over
    cancel       the end was asked for                      launch/   the launcher, and the script if there is one
    stdout.log stderr.log                                   work/ tmp/  the job's own folders
    samples      what it used, sampled while it ran         disk      bytes of work/ and tmp/, as last measured
```

A record appears whole or not at all: it is written under another name and renamed. The room for `started` and
`ended` is taken beforehand, so that a job that fills the disk still ends properly. A run exists, for everybody,
once `started` or `ended` does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus._kit.crashpoints import step
from isthmus._kit.files import NotRegular, read_regular

RECORD_BYTES = 4096
MOST_RECORD = 16 * 2**20
"""Bytes of a record that are read: the longest that we write has the words of one command line."""
_RUN_ID = re.compile(r"[0-9a-f][0-9a-f-]{0,62}\.(?:0|[1-9][0-9]{0,8})")


def valid_run_id(run_id: str) -> bool:
    """Whether it is a uid and a number, and so can be the name of a folder."""
    return _RUN_ID.fullmatch(run_id) is not None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return self.path.name

    @property
    def spec(self) -> Path:
        """The plan that the supervisor follows."""
        return self.path / "spec.json"

    @property
    def started(self) -> Path:
        """Exists: the program was started, or was about to be; it is never started again."""
        return self.path / "started"

    @property
    def ended(self) -> Path:
        """Exists: the run is over."""
        return self.path / "ended"

    @property
    def cancel(self) -> Path:
        """Exists: the end was asked for."""
        return self.path / "cancel"

    @property
    def work(self) -> Path:
        """The job's working folder."""
        return self.path / "work"

    @property
    def tmp(self) -> Path:
        """The job's own /tmp."""
        return self.path / "tmp"

    @property
    def launch(self) -> Path:
        """What the job's shell reads: launcher and script."""
        return self.path / "launch"

    @property
    def samples(self) -> Path:
        """What it used, sampled while it ran; see `engines.sampling`."""
        return self.path / "samples"

    @property
    def disk(self) -> Path:
        """Bytes that its own folders take, as the supervisor last measured them."""
        return self.path / "disk"

    @property
    def sampling_log(self) -> Path:
        """What could not be sampled, and why; see `engines.meters`."""
        return self.path / "sampling.log"

    def log(self, stream: str) -> Path:
        """`stdout.log` or `stderr.log`."""
        return self.path / f"{stream}.log"

    def lock(self) -> int | None:
        """Take the run's lock, if nobody has it: the descriptor that holds it."""
        return try_lock(self.path / "lock")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder of all runs."""

    root: Path

    @property
    def runs(self) -> Path:
        """Where the runs are."""
        return self.root / "runs"

    @property
    def staging(self) -> Path:
        """Where runs are prepared."""
        return self.root / "staging"

    @property
    def units(self) -> Path:
        """Which run has which unit."""
        return self.root / "units"

    def run(self, run_id: str) -> RunFolder:
        """The folder of a run; the id must have been checked."""
        if not valid_run_id(run_id):
            raise ValueError(f"{run_id!r} is not the id of a run")
        return RunFolder(self.runs / run_id)

    def make(self, mode: int) -> None:
        """Create what is not there."""
        for folder in (self.root, self.runs, self.staging, self.units):
            step(folder.mkdir, parents=True, exist_ok=True)
            step(folder.chmod, 0o700 if folder in (self.staging, self.units) else mode)

    def run_ids(self) -> set[str]:
        """Every run there is a folder of."""
        with os.scandir(self.runs) as entries:
            return {entry.name for entry in entries if valid_run_id(entry.name)}


def try_lock(path: Path) -> int | None:
    """Lock a file if nobody else has: the descriptor, which holds the lock until it is closed."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock, waiting for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def reserve_record(path: Path) -> None:
    """Take the room that a record will need."""
    fd = step(os.open, f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        step(os.posix_fallocate, fd, 0, RECORD_BYTES)
    finally:
        os.close(fd)


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Make a record appear, whole and lasting."""
    fd = step(os.open, f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        step(os.pwrite, fd, json.dumps(record).encode().ljust(RECORD_BYTES), 0)
        # Visible first, lasting next: one commit of the file system's journal then covers content and name.
        step(Path(f"{path}.new").replace, path)
        os.fsync(fd)
    finally:
        os.close(fd)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_record(path: Path) -> dict[str, Any] | None:
    """A record; None if there is none. One that a power loss, or the job itself, destroyed is read as empty."""
    try:
        content = read_regular(path, MOST_RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegular:
        return {}
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
