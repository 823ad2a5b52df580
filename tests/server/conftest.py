from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that the tests of a module share."""
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server to do with as one likes; not started yet."""
    made = ServerProcess(tmp_path / "data")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.stop()
