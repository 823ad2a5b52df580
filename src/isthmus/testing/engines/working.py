"""What the suites of engines share: runs to make, files to send, a sink for what comes back, and ways to wait."""

from __future__ import annotations

import asyncio
import secrets
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from isthmus.engines.base import Account, Engine, LogReader, Observation, ReadingEngine, Run, RunState, Stream
from isthmus.resources.work.trees import TreeFile, digest_of

PATIENCE = 90.0


class SuiteEngine(Engine, ReadingEngine, Protocol):
    """The suites read logs to see what a run did."""


Reopen = Callable[[], Awaitable[SuiteEngine]]


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What may differ between engines."""

    account: Account = field(default_factory=Account)
    """Under whom the suite's runs run."""
    shortest_time_limit: float = 1.0
    """Seconds; the least that the engine can enforce."""
    reports_start_failures: bool = True
    """Whether a program that does not exist is distinguished from one that fails."""
    reports_out_of_memory: bool = True
    """Whether an end for want of memory is distinguished from a failure."""
    leads_to_ports: bool = True
    """Whether runs have networks of their own, or what else keeps their ports apart from those of others."""


class FolderSource:
    """A folder to send along, made of texts and of links (written as `-> target`)."""

    def __init__(
        self, folder: Path, contents: Mapping[str, bytes | str], modes: Mapping[str, int] | None = None
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        files: list[TreeFile] = []
        for path, content in contents.items():
            if isinstance(content, str):
                files.append(TreeFile(path=path, link=content.removeprefix("-> ")))
                continue
            digest = digest_of(content)
            (folder / digest.removeprefix("sha256:")).write_bytes(content)
            mode = (modes or {}).get(path, 0o644)
            files.append(TreeFile(path=path, digest=digest, size=len(content), mode=mode))
        self.files: Sequence[TreeFile] = files

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies."""
        assert file.digest is not None
        return self._folder / file.digest.removeprefix("sha256:")


class WaitingSource(FolderSource):
    """A folder whose files are not there until somebody says so: who sends it is stopped half-way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"file": secrets.token_bytes(16)})  # an engine that keeps contents has not got it
        self.asked, self.given = threading.Event(), threading.Event()

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies, in the end."""
        self.asked.set()
        assert self.given.wait(PATIENCE)
        return super().path_of(file)


class MemorySink:
    """Keeps what is brought back."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.links: dict[str, str] = {}

    async def add(self, path: str, source: Path | int, mode: int) -> None:
        """Keep a file."""
        self.files[path] = await asyncio.to_thread(_content, source)
        self.modes[path] = mode

    async def add_link(self, path: str, target: str) -> None:
        """Keep a link."""
        self.links[path] = target


def _content(source: Path | int) -> bytes:
    with open(source, "rb", closefd=not isinstance(source, int)) as file:
        return file.read()


def new_run_id(attempt: int = 0) -> str:
    """An id that was never used."""
    return f"{uuid.uuid4()}.{attempt}"


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE) -> Any:
    """Look again and again until the answer is true; fails after so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (answer := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        await asyncio.sleep(0.01)
    return answer


async def wait_ended(engine: Engine, run_id: str) -> Observation:
    """The observation of a run once it has ended."""

    async def look() -> Observation | None:
        seen = await engine.observe(run_id)
        return seen if seen is not None and seen.state is RunState.ENDED else None

    ended: Observation = await until(look, f"the end of run {run_id}")
    return ended


async def whole_log(engine: LogReader, run_id: str, stream: Stream = Stream.STDOUT) -> bytes:
    """All of a log."""
    parts: list[bytes] = []
    offset = 0
    while part := await engine.read_log(run_id, stream, offset, 65536):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


async def wait_log_has(engine: LogReader, run_id: str, text: bytes) -> None:
    """Follow a log until it holds this text."""

    async def look() -> bool:
        log = await whole_log(engine, run_id)
        if text in log:
            return True
        await engine.wait_log(run_id, Stream.STDOUT, len(log), 5.0)
        return False

    await until(look, f"{text!r} in the log of run {run_id}")


class EngineSuite:
    """What all suites share."""

    traits = EngineTraits()

    def make_run(self, *command: str, **fields: Any) -> Run:
        """A run of this command, or with the given fields."""
        defaults: dict[str, Any] = {
            "id": new_run_id(),
            "namespace": "contract",
            "job": "job",
            "command": command,
            "account": self.traits.account,
        }
        return Run(**(defaults | fields))

    def shell(self, script: str, **fields: Any) -> Run:
        """A run of some shell lines."""
        return self.make_run("/bin/sh", "-c", script, **fields)
