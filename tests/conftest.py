"""What all tests share: asyncio as the event loop, and the wait for programs that are built first."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from isthmus.errors import Misconfigured
from isthmus.lab.kubernetes.binaries import ensure, tell


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Kubernetes come last: on a new machine its programs are being built meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("kubernetes") is not None)
    for item in items:
        if item.get_closest_marker("kubernetes") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))  # the first of them also starts a cluster


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The wait for a build does not count against the time limit of the test that needs it."""
    if item.get_closest_marker("kubernetes") is not None:
        try:
            ensure()
        except Misconfigured as error:  # the test itself will say so again, and fail
            tell(error.message)
    return (yield)
