"""Local engines for the tests: every one ends with its keeper, its runs and its groups gone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import Account, RunState
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import LocalSettings
from isthmus.testing.engines import OpenReader, Traces, wait_ended
from isthmus.testing.traces import tree_of

MakeEngine = Callable[..., Awaitable[LocalEngine]]
ACCOUNT = Account(uid=261_001)
OTHER_ACCOUNT = Account(uid=261_002)
IS_ROOT = os.geteuid() == 0


@pytest.fixture
async def make_engine(tmp_path: Path, open_folder: Path) -> AsyncIterator[MakeEngine]:
    """Opens engines, all on the same root unless told otherwise. `open_folder` must outlive them."""
    engines: list[LocalEngine] = []

    async def make(**settings: Any) -> LocalEngine:
        engine = LocalEngine(LocalSettings(**({"root": tmp_path / "site"} | settings)))
        await engine.open()
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        for run_id in engine._layout.run_ids():
            seen = await engine.observe(run_id)
            if seen is not None and seen.state is not RunState.ENDED:
                await engine.cancel(run_id, grace=0)
                await wait_ended(engine, run_id)
        await engine.close()
        await engine.stop_keeper()


@pytest.fixture
async def engine(make_engine: MakeEngine) -> LocalEngine:
    return await make_engine()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts can pass through to, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-test-"))
    folder.chmod(0o711)
    yield folder / "site"
    shutil.rmtree(folder)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the runs of `engine`."""
    return tmp_path / "site"


@pytest.fixture
def reader(root: Path) -> OpenReader:
    return LocalEngine(LocalSettings(root=root)).open_to_read


@pytest.fixture
def traces(root: Path) -> Traces:
    async def found() -> object:
        return tree_of(root)

    return found
