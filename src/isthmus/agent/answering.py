"""Answering the control plane's calls with what an engine on this machine says.

Everything may be asked again: runs are known by their ids, and a submission that is under way is joined by the next
one of the same run. When the connection ends so do its calls; a submission comes to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import pwd
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from isthmus.engines.agent.frames import DOCUMENT, ProtocolViolation
from isthmus.engines.agent.incoming import MOST_SENTENCES, encode_record, mark_of_path
from isthmus.engines.agent.linking import AgentCall, CallFailed, LinkLost, encode_body
from isthmus.engines.agent.messages import (
    BODY_LIMIT,
    RUN_ID,
    encode_error,
    encode_inventory,
    encode_listing,
    encode_observation,
    parse_classes,
    parse_run,
    text,
    whole,
)
from isthmus.engines.base import Engine, FolderReader, Observation, ReadingEngine, Run, Stream
from isthmus.errors import EngineRefused, IsthmusError, NotFound
from isthmus.resources.frame.fields import check_path
from isthmus.resources.work.trees import Tree, TreeFile

from .board_finding import find_boards
from .contents import ContentStore, KeptSource
from .owner_rules import OwnerRules

log = logging.getLogger(__name__)

_PIECE = 256 * 1024
_LONGEST_WAIT = 120.0
_MOST_ENTRIES = 100_000
_SETTLE_SECONDS = 20.0
_LARGEST_PART = 64 * 2**20


class WorkingEngine(Engine, ReadingEngine, FolderReader):
    """What an agent needs of the engine that it has."""


class Answers:
    """One machine's answers."""

    def __init__(
        self,
        engine: WorkingEngine,
        contents: ContentStore,
        rules: OwnerRules,
        facts: dict[str, str],
        more: Mapping[str, Callable[[AgentCall], Awaitable[None]]] | None = None,
    ) -> None:
        """`facts` are added to the features of the inventory; `more` are calls that others answer."""
        self._engine, self._contents, self._rules, self._facts = engine, contents, rules, facts
        self._superuser = os.geteuid() == 0
        self._submitting: dict[str, asyncio.Task[Observation]] = {}
        self._answers: dict[str, Callable[[AgentCall], Awaitable[None]]] = {
            "probe": self._probe,
            "submit": self._submit,
            "put": self._put,
            "observe": self._observe,
            "cancel": self._cancel,
            "collect": self._collect,
            "tidy": self._tidy,
            "forget": self._forget,
            "changes": self._changes,
            "read_log": self._read_log,
            "read_samples": self._read_samples,
            "log_size": self._log_size,
            "wait_log": self._wait_log,
            "list_files": self._list_files,
            "read_file": self._read_file,
            **(more or {}),
        }

    async def answer(self, call: AgentCall) -> None:
        """One call; whatever goes wrong is the answer."""
        try:
            answer = self._answers.get(text(call.head.get("call"), 50))
            if answer is None:
                raise EngineRefused(f"This agent knows no call {text(call.head.get('call'), 50)!r}; upgrade it.")
            await answer(call)
        except (LinkLost, CallFailed):
            pass  # nobody waits for it any more
        except IsthmusError as error:
            call.fail(encode_error(error))
        except ProtocolViolation as error:
            call.fail({"code": "Invalid", "message": str(error)})
        except Exception as error:  # nobody foresaw it: the control plane hears of it, and the agent goes on
            log.exception("a call failed")
            call.fail(encode_error(error))

    async def settle(self) -> None:
        """Let what the last connection asked for come to its end, before the next is made; images may take longer."""
        if self._submitting:
            await asyncio.wait(self._submitting.values(), timeout=_SETTLE_SECONDS)

    async def _probe(self, call: AgentCall) -> None:
        classes = parse_classes(await call.read(BODY_LIMIT))
        found = await self._engine.probe([one for c in classes if (one := self._rules.permitted(c)) is not None])
        found = replace(found, features={**found.features, **self._facts})
        boards = [list(one) for one in await asyncio.to_thread(find_boards)]
        await _reply(call, {**encode_inventory(found, self._engine.capabilities), "boards": boards})

    async def _submit(self, call: AgentCall) -> None:
        body = await call.read(BODY_LIMIT)
        run, files = await asyncio.to_thread(parse_run, body)
        seen = await self._engine.observe(run.id)
        if seen is None and run.id not in self._submitting:
            now = datetime.now().astimezone().time()
            self._rules.check(run, now, _is_known, superuser=self._superuser)
            if files is not None:
                await asyncio.to_thread(_check_tree, files)
                if missing := await asyncio.to_thread(self._contents.missing, files):
                    await _reply(call, {"missing": missing})
                    return
        if seen is None:
            seen = await asyncio.shield(self._submission(run, files))
        await _reply(call, encode_observation(seen))

    def _submission(self, run: Run, files: list[TreeFile] | None) -> asyncio.Task[Observation]:
        task = self._submitting.get(run.id)
        if task is None:
            task = self._submitting[run.id] = asyncio.create_task(self._start(run, files), name="submission")
            task.add_done_callback(lambda done: self._submitted(run.id, done))
        return task

    def _submitted(self, run_id: str, task: asyncio.Task[Observation]) -> None:
        del self._submitting[run_id]
        if not task.cancelled():
            task.exception()  # whoever waits for it hears of it; nobody need wait

    async def _start(self, run: Run, files: list[TreeFile] | None) -> Observation:
        if files is None:
            return await self._engine.submit(run)
        with self._contents.using(files):
            seen = await self._engine.submit(run, KeptSource(self._contents, files))
        await asyncio.to_thread(self._contents.prune)
        return seen

    async def _put(self, call: AgentCall) -> None:
        head = call.head
        file = TreeFile(path="content", digest=text(head.get("digest"), 100), size=whole(head.get("size"), 2**62))
        assert file.digest is not None
        await self._contents.put(file.digest, file.size, whole(head.get("offset"), file.size), call)
        call.finish()

    async def _observe(self, call: AgentCall) -> None:
        seen = await self._engine.observe(_run(call))
        await _reply(call, {"known": False} if seen is None else encode_observation(seen))

    async def _cancel(self, call: AgentCall) -> None:
        grace = call.head.get("grace")
        seconds = float(grace) if isinstance(grace, int | float) and 0 <= grace <= 86_400 else 5.0
        await self._engine.cancel(_run(call), grace=seconds)
        call.finish()

    async def _collect(self, call: AgentCall) -> None:
        said = json.loads(await call.read(BODY_LIMIT))
        sink = _SendingSink(call, said.get("have") or {})
        skipped = await self._engine.collect(_run(call), [text(one, 4096) for one in said["patterns"]], sink)
        more = len(skipped) - MOST_SENTENCES
        if more > 0:
            skipped = [*skipped[: MOST_SENTENCES - 1], f"{more + 1} more files were not kept."]
        await call.send(encode_record({"skipped": [one[:500] for one in skipped]}))
        call.finish()

    async def _tidy(self, call: AgentCall) -> None:
        await self._engine.tidy(_run(call))
        call.finish()

    async def _forget(self, call: AgentCall) -> None:
        await self._engine.forget(_run(call))
        call.finish({"known": await self._engine.observe(_run(call)) is not None})

    async def _changes(self, call: AgentCall) -> None:
        async with contextlib.aclosing(self._engine.changes()) as changes:  # type: ignore[type-var]
            async for ids in changes:
                await call.send(encode_body(sorted(ids)) + b"\n")
        call.finish()

    async def _read_log(self, call: AgentCall) -> None:
        size = whole(call.head.get("size"), _LARGEST_PART)
        await _give(call, await self._engine.read_log(_run(call), _stream(call), _offset(call), size))

    async def _read_samples(self, call: AgentCall) -> None:
        size = whole(call.head.get("size"), _LARGEST_PART)
        await _give(call, await self._engine.read_samples(_run(call), _offset(call), size))

    async def _log_size(self, call: AgentCall) -> None:
        call.finish({"size": await self._engine.log_size(_run(call), _stream(call))})

    async def _wait_log(self, call: AgentCall) -> None:
        asked = call.head.get("timeout")
        seconds = min(float(asked), _LONGEST_WAIT) if isinstance(asked, int | float) and asked > 0 else 0.0
        await self._engine.wait_log(_run(call), _stream(call), _offset(call), seconds)
        call.finish()

    async def _list_files(self, call: AgentCall) -> None:
        found = await self._engine.list_files(_run(call), whole(call.head.get("most"), _MOST_ENTRIES))
        await _give(call, encode_body(encode_listing(found)))

    async def _read_file(self, call: AgentCall) -> None:
        path = check_path(text(call.head.get("path"), 8192))
        size = whole(call.head.get("size"), _LARGEST_PART)
        part = await self._engine.read_file(_run(call), path, _offset(call), size)
        await call.send(part.data)
        call.finish({"size": part.size, "mark": part.mark})


class _SendingSink:
    """Sends files as they are found; of those that the control plane has a part of, the rest."""

    def __init__(self, call: AgentCall, have: dict[str, Any]) -> None:
        self._call, self._have = call, have

    async def add(self, path: str, source: Path | int, mode: int) -> None:
        """Send one file."""
        assert isinstance(source, int), "what a job left is handed on by its descriptor"
        size = os.fstat(source).st_size
        have = whole(self._have.get(mark_of_path(path)), 2**62)
        offset = have if have <= size else 0
        await self._call.send(encode_record({"path": path, "mode": mode, "size": size, "offset": offset}))
        hasher, at = hashlib.sha256(), 0
        while at < size:
            piece = await asyncio.to_thread(os.pread, source, min(_PIECE, size - at), at)
            if not piece:
                raise EngineRefused(f"{path} became shorter while it was sent.")
            hasher.update(piece)
            if at + len(piece) > offset:
                await self._call.send(piece[max(offset - at, 0) :])
            at += len(piece)
        await self._call.send(encode_record({"digest": f"sha256:{hasher.hexdigest()}"}))

    async def add_link(self, path: str, target: str) -> None:
        """Send a link."""
        await self._call.send(encode_record({"path": path, "link": target}))


async def _reply(call: AgentCall, value: dict[str, Any]) -> None:
    body = encode_body(value)
    if len(body) <= DOCUMENT:
        call.finish(value)
    else:
        await _give(call, body)


async def _give(call: AgentCall, data: bytes) -> None:
    for at in range(0, len(data), _PIECE):
        await call.send(data[at : at + _PIECE])
    call.finish()


def _run(call: AgentCall) -> str:
    run_id = text(call.head.get("run"), 100)
    if not RUN_ID.fullmatch(run_id):
        raise NotFound(f"This site has no run {run_id!r}.")
    return run_id


def _stream(call: AgentCall) -> Stream:
    return Stream.STDERR if call.head.get("stream") == Stream.STDERR.value else Stream.STDOUT


def _offset(call: AgentCall) -> int:
    return whole(call.head.get("offset"), 2**62)


def _check_tree(files: list[TreeFile]) -> None:
    try:
        Tree(files=files)
    except ValueError as error:
        raise EngineRefused(f"The files of the run cannot be: {error}") from None


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
