"""What all tests share: asyncio as the event loop, one Kubernetes API server, and the wait for its build."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from isthmus.errors import Misconfigured
from isthmus.lab.fetching import teller
from isthmus.lab.kubernetes.binaries import ensure
from isthmus.lab.kubernetes.control_plane import ControlPlane
from isthmus.testing.kubernetes import running_api_server
from isthmus.testing.kubernetes_home import settled

# A busy machine is slow, which says nothing about what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm-release", default="", help="run Slurm of this Debian release, such as trixie, in tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Kubernetes come last: on a new machine its programs are being built meanwhile."""
    for item in items:
        if "kubernetes_api" in getattr(item, "fixturenames", ()):
            item.add_marker("kubernetes")
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
            teller("kubernetes")(error.message)
    return (yield)


@pytest.fixture(scope="session")
def kubernetes_api() -> Iterator[ControlPlane]:
    """A real API server with its controllers, made a home of Isthmus. On a new machine it is built first."""
    with running_api_server() as control:
        asyncio.run(settled(control.kubeconfig))
        control.start_controllers()  # after our kinds are known: they look for new ones only now and then
        yield control
