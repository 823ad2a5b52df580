"""The agent as a process: an engine of this machine behind the connection to a control plane.

The engine is the local one. It stays open while the connection is away: what runs goes on, and is reported when it
is back.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import isthmus
from isthmus._kit.quantities import parse_bytes
from isthmus.agent.answering import Answers, WorkingEngine
from isthmus.agent.connecting import Connector
from isthmus.agent.contents import ContentStore
from isthmus.agent.owner_rules import OwnerRules, parse_rules
from isthmus.agent.places import AgentPlace
from isthmus.agent.upgrading import Upgrader
from isthmus.agent.versions import RESTART, TRIAL_SECONDS, UNHEARD, AgentVersions
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices, Isolation, LocalSettings, Network
from isthmus.engines.local.switching_off import end_runs, going_runs
from isthmus.errors import Conflict, IsthmusError, Misconfigured

_LAST_WORD_SECONDS = 0.5


def run(data: Path) -> int:
    """Be the agent of this machine until a signal says stop; the exit code. Jobs go on."""
    return asyncio.run(serve(data))


async def serve(data: Path) -> int:
    """The same in a loop."""
    place = AgentPlace(data)
    membership = place.membership()
    place.make()
    lock = place.lock()
    try:
        os.umask(0o077)  # what we make from here on is ours alone; what jobs need is opened to them
        rules = _rules(place.rules)
        contents = ContentStore(place.contents, parse_bytes(rules.max_contents))
        engine = LocalEngine(_settings(place, rules))
        versions, restart = AgentVersions(place.data), asyncio.Event()
        upgrader = Upgrader(versions, contents, restart.set, permitted=rules.upgrades)
        answers = Answers(cast(WorkingEngine, engine), contents, rules, _facts(rules), {"upgrade": upgrader.answer})
        connector = Connector(
            membership, place.key(), place.machine(), answers.answer, answers.settle, upgrader.describe
        )
        await engine.open()
        try:
            return await _until_stopped(connector, versions, restart)
        finally:
            await engine.close()
    finally:
        lock.close()


def take_away(place: AgentPlace, *, force: bool, stop: Callable[[], None]) -> None:
    """What the agent runs is ended, its service stopped by `stop`, its folder removed.

    Raises Conflict while jobs run, unless forced.
    """
    if (going := going_runs(place.runs)) and not force:
        raise Conflict(f"{len(going)} jobs run on this machine; wait for them, or say --force")
    stop()
    place.lock().close()  # raises Misconfigured while an agent runs that is no service
    asyncio.run(end_runs(place.runs, grace=5.0))
    shutil.rmtree(place.data)


async def _until_stopped(connector: Connector, versions: AgentVersions, restart: asyncio.Event) -> int:
    """Work until a signal, an upgrade or the end of a trial says stop; the exit code."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    working = asyncio.ensure_future(connector.run())
    ends: dict[asyncio.Future[Any], int] = {
        asyncio.ensure_future(stopped.wait()): 0,
        asyncio.ensure_future(restart.wait()): RESTART,
    }
    trial = asyncio.ensure_future(_on_trial(connector, versions))
    if versions.on_trial:
        ends[trial] = UNHEARD
    try:
        await asyncio.wait([working, *ends], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()  # raises why
        if restart.is_set():
            await asyncio.sleep(_LAST_WORD_SECONDS)  # the answer to the offer leaves
        return next((code for end, code in ends.items() if end.done()), 1)
    finally:
        for task in (working, trial, *ends):
            task.cancel()
        await asyncio.gather(working, trial, *ends, return_exceptions=True)


async def _on_trial(connector: Connector, versions: AgentVersions) -> None:
    """Ends when a new version has not connected in time; one that has stays."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            await connector.connected.wait()
    except TimeoutError:
        return
    versions.confirm()
    await asyncio.Event().wait()


def _rules(file: Path) -> OwnerRules:
    try:
        return parse_rules(file.read_text())
    except FileNotFoundError:
        return OwnerRules()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error}") from None


def _settings(place: AgentPlace, rules: OwnerRules) -> LocalSettings:
    return LocalSettings(
        root=place.runs,
        cpus=rules.cpus,
        memory_bytes=parse_bytes(rules.memory) if rules.memory else None,
        isolation=cast(Isolation, rules.isolation),
        network=cast(Network, rules.network),
        visible=tuple(Path(folder) for folder in rules.visible),
        devices=tuple(
            DeclaredDevices(one["class"], one.get("count", 1), tuple(one.get("paths", ()))) for one in rules.device
        ),
    )


def _facts(rules: OwnerRules) -> dict[str, str]:
    return {
        "agent": f"isthmus {isthmus.__version__}",
        "architecture": platform.machine(),
        "permitted": rules.describe(),
    }


if __name__ == "__main__":
    from isthmus.server.journal import start_journal

    start_journal(sys.argv[2])
    try:
        sys.exit(run(Path(sys.argv[1])))
    except IsthmusError as error:
        sys.exit(f"isthmus: {error.message}")
