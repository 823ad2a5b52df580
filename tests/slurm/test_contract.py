"""The Slurm engine passes the engine contract, whichever way Slurm is reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.testing.engines import EngineContract, Reopen

from .conftest import SSH_USER, MakeEngine, settings_of, ssh_settings

pytestmark = pytest.mark.real


@pytest.fixture
def reopen(engine: SlurmEngine, make_engine: MakeEngine) -> Reopen:
    async def again() -> SlurmEngine:
        await engine.close()
        return await make_engine()

    return again


class TestCommandLine(EngineContract):
    """Slurm's commands on this machine, and its file system."""


class TestRest(EngineContract):
    """slurmrestd with tokens made for each person; files by the shared file system."""

    @pytest.fixture
    def settings(self, lab: SlurmLab) -> SlurmSettings:
        rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
        return replace(settings_of(lab), transport="REST", rest=rest)


class TestSsh(EngineContract):
    """Slurm's commands and the files over SSH, as the person."""

    @pytest.fixture
    def settings(self, lab: SlurmLab, login: LoginNode) -> SlurmSettings:
        return ssh_settings(lab, login, service=SSH_USER)
