"""The local engine passes the engine contract, in its sandbox and without."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from isthmus.engines.local.driver import LocalEngine
from isthmus.testing.engines import (
    BrowseContract,
    ConnectContract,
    EngineTraits,
    ExecContract,
    MeasureContract,
    ReadContract,
    Reopen,
    RunContract,
    TaskContract,
)

from .conftest import ACCOUNT, MakeEngine


class TestSandboxed(
    RunContract, ReadContract, BrowseContract, ConnectContract, ExecContract, MeasureContract, TaskContract
):
    """As the machine allows it: bubblewrap and cgroups."""

    traits = EngineTraits(account=ACCOUNT)

    @pytest.fixture
    def reopen(self, engine: LocalEngine, make_engine: MakeEngine) -> Reopen:
        async def again() -> LocalEngine:
            await engine.close()
            return await make_engine()

        return again

    @pytest.fixture
    def another(self, make_engine: MakeEngine) -> Reopen:
        return make_engine


class TestBare(RunContract, ReadContract, BrowseContract, ConnectContract, ExecContract, MeasureContract, TaskContract):
    """Neither sandbox nor cgroups: accounts, sessions and rlimits only."""

    traits = EngineTraits(account=ACCOUNT, reports_out_of_memory=False, leads_to_ports=False)

    @pytest.fixture
    def bare(self, open_folder: Path, tmp_path: Path) -> dict[str, object]:
        return {"root": open_folder, "isolation": "None", "system": tmp_path / "no-cgroups"}

    @pytest.fixture
    async def engine(self, make_engine: MakeEngine, bare: dict[str, object]) -> LocalEngine:
        return await make_engine(**bare)

    @pytest.fixture
    def reopen(self, engine: LocalEngine, make_engine: MakeEngine, bare: dict[str, object]) -> Reopen:
        async def again() -> LocalEngine:
            await engine.close()
            return await make_engine(**bare)

        return again

    @pytest.fixture
    def another(self, make_engine: MakeEngine, bare: dict[str, object]) -> Reopen:
        return partial(make_engine, **bare)

    @pytest.fixture
    def root(self, open_folder: Path) -> Path:
        return open_folder
