"""What all tests share: asyncio as the event loop, one Kubernetes API server, the wait for its build, and their order.

Tests are handed to workers file by file, but files that share a lab stay together, so that it is started once. What
takes longest begins first, so that no worker ends long after the others; `durations.txt` tells how long each took.
Tests that need Kubernetes come somewhat later: on a new machine its programs are being built meanwhile. When much has
changed, write the table again on a quiet machine:  pytest -n 3 --write-durations
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from isthmus.errors import Misconfigured
from isthmus.lab.fetching import reporter
from isthmus.lab.kubernetes.binaries import ensure
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.testing.kubernetes import running_api_server
from isthmus.testing.kubernetes_store import settled
from isthmus.testing.servers import ServerProcess, running_server

# A busy machine is slow, which says nothing about what is tested.
# In CI the same examples are tried at each run, so that a change is judged by what it changes; people's runs explore.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("busy")


def leave_the_user_alone() -> None:
    """Tests see neither the user's settings nor an instance that is running: only caches are shared.

    Set once for this process, so that every program which a test starts inherits it.
    """
    for name in [name for name in os.environ if name.startswith("ISTHMUS_")] + ["KUBECONFIG", "SLURM_CONF"]:
        os.environ.pop(name, None)
    empty = tempfile.mkdtemp(prefix="isthmus-tests-")
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ |= {"XDG_CONFIG_HOME": empty, "XDG_DATA_HOME": empty, "ISTHMUS_DATA": f"{empty}/isthmus"}
    atexit.register(shutil.rmtree, empty, ignore_errors=True)


leave_the_user_alone()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


TABLE = Path(__file__).with_name("durations.txt")
TOGETHER = {
    "tests/engines/kubernetes/": "tests/engines/kubernetes/",
    "tests/engines/slurm/test_newer.py": "tests/engines/slurm/test_newer.py",  # has a lab of its own
    "tests/engines/slurm/": "tests/engines/slurm/",
    "tests/store/kubernetes/": "Kubernetes API server",
    "tests/store/test_moving.py": "Kubernetes API server",
}
"""Beginnings of paths, and the name of what they share; the first that fits counts."""
LONG = 20.0
spent: Counter[str] = Counter()


def unit_of(nodeid: str) -> str:
    """What goes to one worker: a file, or all that share a lab."""
    file = nodeid.partition("::")[0]
    return next((name for start, name in TOGETHER.items() if file.startswith(start)), file)


def weights() -> dict[str, float]:
    lines = [line.split(maxsplit=1) for line in TABLE.read_text().splitlines()]
    return {unit: float(seconds) for seconds, unit in lines}


class ByUnit(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByUnit:
    config.option.loadscopereorder = False  # by number of tests, it would be
    return ByUnit(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    weight = weights()
    late = set()
    for item in items:
        if "kubernetes_api" in getattr(item, "fixturenames", ()):
            item.add_marker("kubernetes")
        if item.get_closest_marker("kubernetes"):
            late.add(unit_of(item.nodeid))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(300))  # the first of them also starts a cluster

    def turn(item: pytest.Item) -> tuple[int, float, str]:
        unit = unit_of(item.nodeid)
        seconds = weight.get(unit, 0.0)
        return 1 if unit in late else 0 if seconds >= LONG else 2, -seconds, unit

    items.sort(key=turn)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slurm-release", default="", help="run Slurm of this Debian release, such as trixie, in tests")
    parser.addoption("--crash-points", default="4", help="how many crash points by chance, all, or names with commas")
    parser.addoption("--write-durations", action="store_true", help="write tests/durations.txt again")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    spent[unit_of(report.nodeid)] += report.duration
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:  # at once: the reasons follow at the end
        print(f"\nfailed: {report.nodeid} ({report.when})", flush=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-durations") and not hasattr(session.config, "workerinput"):
        TABLE.write_text("".join(f"{took:.0f} {unit}\n" for unit, took in spent.most_common() if took >= 1))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The wait for a build does not count against the time limit of the test that needs it."""
    if item.get_closest_marker("kubernetes") is not None:
        try:
            ensure()
        except Misconfigured as error:  # the test itself will say so again, and fail
            reporter("kubernetes")(error.message)
    return (yield)


@pytest.fixture(scope="session")
def kubernetes_api() -> Iterator[LabControlPlane]:
    """A real API server with its controllers, made a store of Isthmus. On a new machine it is built first."""
    with running_api_server() as control:
        asyncio.run(settled(control.kubeconfig))
        control.start_controllers()  # after our kinds are known: they look for new ones only now and then
        yield control


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
