"""An agent as a process of its own for the tests of a module, and a hub for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.driver import AgentEngine
from isthmus.engines.agent.settings import AgentSettings
from isthmus.testing.agent_processes import AgentProcess, connected, listening

MakeAgentEngine = Callable[[], Awaitable[AgentEngine]]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """Runs, and connects to whatever listens at its port."""
    process = AgentProcess(tmp_path_factory.mktemp("agent") / "data")
    process.start()
    yield process
    process.clean()


@pytest.fixture
async def hub(agent: AgentProcess) -> AsyncIterator[AgentHub]:
    """The agent is connected to it."""
    found = AgentHub({agent.site: agent.identity}.get)
    async with listening(found, agent.tls, agent.port):
        await connected(found, agent.site)
        yield found


@pytest.fixture
async def make_engine(hub: AgentHub, agent: AgentProcess, tmp_path: Path) -> AsyncIterator[MakeAgentEngine]:
    engines: list[AgentEngine] = []

    async def make() -> AgentEngine:
        engine = AgentEngine(AgentSettings(agent.site, tmp_path / "incoming"), hub.contact(agent.site))
        await engine.open()
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        await engine.close()


@pytest.fixture
async def engine(make_engine: MakeAgentEngine) -> AgentEngine:
    return await make_engine()
