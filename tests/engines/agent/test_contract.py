"""The engine contract holds through a real agent over a real connection."""

from __future__ import annotations

import contextlib

import pytest

from isthmus.engines.agent.driver import AgentEngine
from isthmus.engines.base import Account
from isthmus.testing.agent_processes import AgentProcess
from isthmus.testing.engines import (
    BrowseContract,
    EngineTraits,
    OpenReader,
    ReadContract,
    Reopen,
    RunContract,
    TaskContract,
    Traces,
)
from isthmus.testing.traces import tree_of

from .conftest import Leading, MakeAgentEngine

pytestmark = pytest.mark.real


class TestAgent(RunContract, ReadContract, BrowseContract, TaskContract):
    """As the machine allows it: the agent's engine has its sandbox and cgroups."""

    traits = EngineTraits(account=Account(uid=261_003))

    @pytest.fixture
    def reopen(self, engine: AgentEngine, make_engine: MakeAgentEngine) -> Reopen:
        async def again() -> AgentEngine:
            await engine.close()
            return await make_engine()

        return again

    @pytest.fixture
    def another(self, hub: Leading, make_engine: MakeAgentEngine) -> Reopen:
        async def other() -> AgentEngine:
            await hub.take_over()
            return await make_engine()

        return other

    @pytest.fixture
    def reader(self, make_engine: MakeAgentEngine, engine: AgentEngine) -> OpenReader:
        return AgentEngine(engine._settings, engine._contact).open_to_read

    @pytest.fixture
    def traces(self, agent: AgentProcess) -> Traces:
        async def found() -> object:
            while True:
                with contextlib.suppress(FileNotFoundError):  # of what is just being renamed
                    return tree_of(agent.place.runs)

        return found
