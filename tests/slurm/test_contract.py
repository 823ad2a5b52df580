"""The Slurm engine passes the engine contract, whichever way Slurm is reached."""

from __future__ import annotations

import pytest

from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.testing.engines import EngineContract, EngineTraits, Reopen

from .conftest import MakeEngine

pytestmark = pytest.mark.real


class TestCommandLine(EngineContract):
    """Slurm's commands on this machine, and its file system."""

    traits = EngineTraits()

    @pytest.fixture
    def reopen(self, engine: SlurmEngine, make_engine: MakeEngine) -> Reopen:
        async def again() -> SlurmEngine:
            await engine.close()
            return await make_engine()

        return again
