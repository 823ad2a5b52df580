"""The agent as a process: an engine of this machine behind the connection to a control plane.

The engine is the local one. It stays open while the connection is away: what runs goes on, and is reported when it
is back.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
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
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices, Isolation, LocalSettings, Network
from isthmus.errors import Misconfigured


def run(data: Path, ready: Callable[[], None] = lambda: None) -> None:
    """Be the agent of this machine until a signal says stop. Jobs go on."""
    asyncio.run(serve(data, ready))


async def serve(data: Path, ready: Callable[[], None] = lambda: None) -> None:
    """The same in a loop; `ready` is called when the engine is open."""
    place = AgentPlace(data)
    membership = place.membership()
    place.make()
    lock = place.lock()
    try:
        os.umask(0o077)  # what we make from here on is ours alone; what jobs need is opened to them
        rules = _rules(place.rules)
        contents = ContentStore(place.contents, parse_bytes(rules.max_contents))
        engine = LocalEngine(_settings(place, rules))
        answers = Answers(cast(WorkingEngine, engine), contents, rules, _facts(rules))
        connector = Connector(membership, place.key(), place.machine(), answers.answer, answers.settle)
        await engine.open()
        try:
            ready()
            await _until_stopped(connector.run())
        finally:
            await engine.close()
    finally:
        lock.close()


async def _until_stopped(work: Any) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


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
