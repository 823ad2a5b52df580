"""An agent as a process of its own for the tests of a module, and a hub for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from isthmus.engines.agent.contacts import AgentHub, Contact
from isthmus.engines.agent.driver import AgentEngine
from isthmus.engines.agent.linking import Channel
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


class Leading(AgentHub):
    """What listens at the port of the agent: whichever control plane leads."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self.now = AgentHub({agent.site: agent.identity}.get)

    async def take_over(self) -> None:
        """Another one leads; the first is stopped, and its connection lost."""
        before, self.now = self.now, AgentHub({self._agent.site: self._agent.identity}.get)
        before.close()
        await connected(self.now, self._agent.site)

    def contact(self, site: str) -> Contact:
        return self.now.contact(site)

    def close(self) -> None:
        self.now.close()

    async def serve(self, channel: Channel, address: str) -> None:
        await self.now.serve(channel, address)


@pytest.fixture
async def hub(agent: AgentProcess) -> AsyncIterator[Leading]:
    """The agent is connected to it."""
    found = Leading(agent)
    async with listening(found, agent.tls, agent.port):
        await connected(found, agent.site)
        yield found


@pytest.fixture
async def make_engine(hub: Leading, agent: AgentProcess, tmp_path: Path) -> AsyncIterator[MakeAgentEngine]:
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
