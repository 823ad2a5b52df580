"""AuditLog: the log of one control plane, in files of its own that only grow.

An entry is handed to the kernel before the request is answered, and so outlives the process, however that ends; it
is on the disk within a second, so that only a power failure can take the last ones. A line that was being written when
the machine stopped is recognised by its missing end, taken away at the next start, and an entry says so.

When the disk takes no more, entries wait in memory, and `check` refuses further changes until they are written. Once
in a while the end of the chain is noted in the store, so that a log that was cut short is found out.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus._kit.clock import timestamp
from isthmus._kit.tasks import Supervised
from isthmus.errors import IsthmusError, Misconfigured, Unavailable
from isthmus.metrics import count_task_failure

from .acts import Act, ActOutcome, Repetitions
from .chaining import Head, read_line, seal

log = logging.getLogger(__name__)

SUFFIX = ".log"
_TAIL = 64 * 1024
"""Bytes at the end of a file in which its last entry is looked for; entries are far shorter."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The audit log."""

    file_bytes: int = 64 * 2**20
    """Of one file; the next one is begun after it."""
    keep_bytes: int = 4 * 2**30
    """Of all files of one control plane; the oldest are removed, and an entry says so."""
    sync_seconds: float = 1.0
    """Within which an entry is on the disk."""
    note_seconds: float = 60.0
    """Between two notes of the end of the chain in the store."""
    waiting: int = 10_000
    """Entries that are kept in memory while the disk takes none."""
    refused_a_minute: int = 30
    """Refusals of one person or address that are kept in full; the others are counted."""
    read_seconds: float = 600.0
    """In which the same reading of the same thing by the same administrator is kept once."""


class AuditLog:
    """The log that this process writes."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: AuditSettings | None = None,
        note: Callable[[Head], Awaitable[None]] | None = None,
        forward: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`note` keeps the end of the chain elsewhere; `forward` gets each line."""
        self.folder, self.settings = folder, settings or AuditSettings()
        self._note, self._forward, self._clock = note, forward, clock
        self._head = Head()
        self._noted = 0
        self._file = self._lock = -1
        self._size = 0
        self._unsynced = False
        self._waiting: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._problem = ""
        self._refusals = Repetitions(seconds=60.0, free=self.settings.refused_a_minute)
        self._readings = Repetitions(seconds=self.settings.read_seconds, free=1)
        self._task = Supervised("audit log", self._look_after, failed=count_task_failure)

    @property
    def head(self) -> Head:
        """The end of the chain."""
        return self._head

    def open(self) -> None:
        """Go on where the last process stopped; raises Misconfigured if that cannot be done."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on()
        except OSError as error:
            self._let_go()
            raise Misconfigured(
                f"the audit log in {self.folder} cannot be written ({error.strerror}); acts could not be traced"
            ) from None

    def start(self) -> None:
        """Look after it from now on."""
        self._task.start()

    async def close(self) -> None:
        """Write what is left, and note where it ends."""
        await self._task.stop()
        self._write_counts(float("inf"))
        self.event("stopped")
        await self._sync()
        await self._note_end()
        self._let_go()

    def check(self) -> None:
        """Raise Unavailable while acts could not be traced."""
        if self._problem:
            self._flush()
            if self._problem:
                raise Unavailable(
                    f"the audit log cannot be written ({self._problem}), so that nothing is changed until it can; "
                    "an administrator must make room on the server's disk",
                    retry_after=5,
                )

    def act(self, act: Act) -> None:
        """Keep what somebody did or tried to do."""
        if act.outcome is not ActOutcome.ALLOWED:
            now = self._clock()
            self._write_counts(now)
            if not self._refusals.keeps((act.user, act.user and act.credential, act.address, act.outcome.value), now):
                return
        self._append(act.fields())

    def reads(self, *what: str) -> bool:
        """Whether reading this is kept: who reads from where, and what. The same again is left out for a while."""
        now = self._clock()
        self._readings.due(now)
        return self._readings.keeps(what, now)

    def event(self, event: str, **facts: Any) -> None:
        """Keep what happened to the log itself."""
        self._append({"event": event, **facts})

    def _write_counts(self, now: float) -> None:
        for (user, credential, address, outcome), times in self._refusals.due(now):
            who = {"user": user, "credential": credential, "address": address}
            kept = {name: text for name, text in who.items() if text}
            self._append({"event": "repeated", **kept, "outcome": outcome, "times": times})

    def _append(self, fields: dict[str, Any]) -> None:
        moment = timestamp(datetime.fromtimestamp(self._clock(), UTC))
        if len(self._waiting) >= self.settings.waiting:
            self._lost += 1
            return
        self._waiting.append({"time": moment, **fields})
        self._flush()

    def _flush(self) -> None:
        """Write what waits, in order, as far as the disk takes it."""
        try:
            while self._waiting:
                if self._size >= self.settings.file_bytes:
                    self._next_file()
                self._write(self._waiting[0])
                self._waiting.popleft()
            if self._lost:
                self._write({"time": timestamp(datetime.now(UTC)), "event": "lost", "times": self._lost})
                self._lost = 0
            self._problem = ""
        except OSError as error:
            if not self._problem:
                log.error("the audit log cannot be written", extra={"folder": str(self.folder), "error": str(error)})
            self._problem = error.strerror or str(error)

    def _write(self, fields: dict[str, Any]) -> None:
        line, head = seal(self._head, fields)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        self._head = head
        self._unsynced = True
        if self._forward is not None:
            self._forward(line[65:-1].decode())

    def _next_file(self) -> None:
        before, size = self._file, self._size
        self._file, self._size = self._open_file(self._head.n + 1), 0
        try:
            self._write({"time": timestamp(datetime.now(UTC)), "event": "continued", "prev": self._head.hash})
        except OSError:
            os.close(self._file)
            self._file, self._size = before, size
            raise
        if before >= 0:
            os.fsync(before)
            os.close(before)
        self._remove_oldest()

    def _open_file(self, first: int) -> int:
        path = self.folder / f"{first:016d}{SUFFIX}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _remove_oldest(self) -> None:
        files = files_of(self.folder)
        sizes = [path.stat().st_size for path in files]
        gone = 0
        while len(files) - gone > 1 and sum(sizes[gone:]) > self.settings.keep_bytes:
            gone += 1
        if gone:
            # Said first: stopped in between, the log is whole, and the files go when the next one is begun.
            self._write({"time": timestamp(datetime.now(UTC)), "event": "removed", "upTo": int(files[gone].stem) - 1})
            os.fsync(self._file)
            for path in files[:gone]:
                path.unlink()

    def _go_on(self) -> None:
        files = files_of(self.folder)
        if not files:
            self._file = self._open_file(1)
            self.event("begun", log=self.folder.name)
            return
        torn = cut_torn_line(files[-1])
        last = last_entry(files)
        if last is None:
            raise OSError(0, "it has files, but no entry that can be read; move them away to begin a new log")
        head, in_last_file, damaged = last
        self._head = head
        if in_last_file and not damaged:
            self._file = self._open_file(int(files[-1].stem))
            self._size = files[-1].stat().st_size
        else:  # what is damaged stays as it is, for whoever finds out why
            self._next_file()
        if torn:
            self.event("repaired", bytes=torn)
        self.event("started")

    def _let_go(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    async def _look_after(self) -> None:
        noted = time.monotonic()
        while True:
            await asyncio.sleep(self.settings.sync_seconds)
            self._write_counts(self._clock())
            self._flush()
            await self._sync()
            if time.monotonic() - noted >= self.settings.note_seconds:
                await self._note_end()
                noted = time.monotonic()

    async def _sync(self) -> None:
        if self._unsynced and self._file >= 0:
            self._unsynced = False
            copy = os.dup(self._file)  # the next file may be begun meanwhile
            try:
                await asyncio.to_thread(os.fdatasync, copy)
            finally:
                os.close(copy)

    async def _note_end(self) -> None:
        if self._note is not None and self._head.n != self._noted:
            head = self._head
            with suppress(IsthmusError):  # the store is away or another was faster: the next note says it
                await self._note(head)
                self._noted = head.n


def files_of(folder: Path) -> list[Path]:
    """The files of a log, the oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal())


def cut_torn_line(path: Path) -> int:
    """Take away what was being written when everything stopped, and answer how many bytes that was."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        whole = size
        while whole > 0:
            start = max(0, whole - _TAIL)
            file.seek(start)
            found = file.read(whole - start).rfind(b"\n")
            if found >= 0:
                whole = start + found + 1
                break
            whole = start
        if whole < size:
            file.truncate(whole)
            os.fsync(file.fileno())
        return size - whole


def last_entry(files: Iterable[Path]) -> tuple[Head, bool, bool] | None:
    """The end of the chain, whether it is in the last file, and whether there is something else after it."""
    in_last_file, damaged = True, False
    for path in reversed(list(files)):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")
        for line in reversed(lines[:-1]):
            if (found := read_line(line)) is not None:
                return Head(found[2]["n"], found[0]), in_last_file, damaged
            damaged = True
        in_last_file = False
    return None
