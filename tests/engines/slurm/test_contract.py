"""The Slurm engine passes the engine contract, whichever way Slurm is reached.

Each test is tried in one of the ways, by chance, unless `--all-variants` is given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.opening import make_engine as make
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.testing.engines import (
    BrowseContract,
    HoldContract,
    OpenReader,
    ReadContract,
    Reopen,
    RunContract,
    StageContract,
    TaskContract,
    Traces,
)
from isthmus.testing.traces import tree_of

from .conftest import SSH_USER, MakeEngine, settings_of, ssh_settings

pytestmark = [pytest.mark.real, pytest.mark.sampled(1)]


@pytest.fixture
def reopen(engine: SlurmEngine, make_engine: MakeEngine) -> Reopen:
    async def again() -> SlurmEngine:
        await engine.close()
        return await make_engine()

    return again


@pytest.fixture
def another(make_engine: MakeEngine) -> Reopen:
    return make_engine


@pytest.fixture
def reader(settings: SlurmSettings) -> OpenReader:
    return make(settings).open_to_read


@pytest.fixture
def traces(settings: SlurmSettings) -> Traces:
    async def found() -> object:
        return tree_of(Path(settings.folder))

    return found


class WholeContract(RunContract, ReadContract, BrowseContract, HoldContract, StageContract, TaskContract):
    """All that a Slurm engine can do."""


class TestCommandLine(WholeContract):
    """Slurm's commands on this machine, and its file system."""


class TestRest(WholeContract):
    """slurmrestd with tokens made for each person; files by the shared file system."""

    @pytest.fixture
    def settings(self, lab: SlurmLab) -> SlurmSettings:
        rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
        return replace(settings_of(lab), transport="REST", rest=rest)


class TestSsh(WholeContract):
    """Slurm's commands and the files over SSH, as the person."""

    @pytest.fixture
    def settings(self, lab: SlurmLab, login: LoginNode) -> SlurmSettings:
        return ssh_settings(lab, login, service=SSH_USER)
