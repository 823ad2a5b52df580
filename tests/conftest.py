"""What all tests share: asyncio as the event loop, one Kubernetes API server, the wait for its build, their order, and
which of them are a sample.

Tests are handed to workers file by file, but files that share a lab stay together, so that it is started once. What
takes longest begins first, so that no worker ends long after the others; `durations.txt` tells how long each took.
Tests that need Kubernetes come somewhat later: on a new machine its programs are being built meanwhile. When much has
changed, write the table again on a quiet machine:  pytest -n 4 --write-durations

Where one test is tried in many ways that cost much (transports, versions, places of a crash), it is marked
`sampled(n)`: an ordinary run takes n of its variants by chance, `--all-variants` takes all. The seed of everything that
is left to chance is printed at the end; `ISTHMUS_TEST_SEED` repeats a choice.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
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

    Set once for this process, so that every program which a test starts inherits it. So do the workers: the seed is
    the same in all of them.
    """
    seed = os.environ.get("ISTHMUS_TEST_SEED") or str(random.SystemRandom().randrange(10**6))
    for name in [name for name in os.environ if name.startswith("ISTHMUS_")] + ["KUBECONFIG", "SLURM_CONF"]:
        os.environ.pop(name, None)
    empty = tempfile.mkdtemp(prefix="isthmus-tests-")
    os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    os.environ |= {"XDG_CONFIG_HOME": empty, "XDG_DATA_HOME": empty, "ISTHMUS_DATA": f"{empty}/isthmus"}
    os.environ["ISTHMUS_TEST_SEED"] = seed
    atexit.register(shutil.rmtree, empty, ignore_errors=True)


leave_the_user_alone()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


TABLE = Path(__file__).with_name("durations.txt")
DISTURBED = ("crash_points", "disturbances", "exactly_once", "faults", "hostile_jobs", "paused")
"""Have a second lab of each kind, so that no worker is alone at the end."""
OWN_LAB = [f"tests/engines/slurm/test_{name}.py" for name in ("controller_kills", "newer", "spreading")]
TOGETHER = {
    **{f"tests/engines/kubernetes/test_{name}.py": "Kubernetes, disturbed" for name in DISTURBED},
    "tests/engines/kubernetes/": "tests/engines/kubernetes/",
    **{path: path for path in OWN_LAB},
    "tests/engines/slurm/test_accounting.py": "Slurm with accounting",
    "tests/engines/slurm/test_replay.py": "Slurm with accounting",
    **{f"tests/engines/slurm/test_{name}.py": "Slurm, disturbed" for name in DISTURBED},
    "tests/engines/slurm/": "tests/engines/slurm/",
    "tests/store/kubernetes/": "Kubernetes API server",
    "tests/store/test_moving.py": "Kubernetes API server",
}
"""Beginnings of paths, and the name of what they share; the first that fits counts."""
MEASURED = tuple(f"tests/{name}/" for name in (Path(__file__).parents[1] / ".ci/measured-folders").read_text().split())
"""Folders whose tests, but for those with real servers, are run apart while lines and branches are counted."""
LONG = 20.0
spent: Counter[str] = Counter()


def unit_of(nodeid: str) -> str:
    """What goes to one worker: a file, or all that share a lab."""
    file = nodeid.partition("::")[0]
    return next((name for start, name in TOGETHER.items() if file.startswith(start)), file)


def weights() -> dict[str, float]:
    """Seconds by unit; what has a lab and is not in the table yet takes long."""
    lines = [line.split(maxsplit=1) for line in TABLE.read_text().splitlines()]
    return {**dict.fromkeys(TOGETHER.values(), 100.0), **{unit: float(seconds) for seconds, unit in lines}}


class ByUnit(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByUnit:
    config.option.loadscopereorder = False  # by number of tests, it would be
    return ByUnit(config, log)


@pytest.hookimpl(trylast=True)  # what the command line names is chosen before
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all-variants"):
        left_out = sample(items, int(os.environ["ISTHMUS_TEST_SEED"]))
        config.hook.pytest_deselected(items=left_out)
    in_order(items)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    servers = item.get_closest_marker("real") or item.get_closest_marker("kubernetes")
    if item.nodeid.startswith(MEASURED) and not servers:
        item.add_marker("measured")


def sample(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Take out of the list what is not tried this time: of the variants of a test, all but so many by chance.

    Variants are what one function of a file becomes by parameters, and by classes that inherit it.
    """
    variants: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            name = getattr(item, "originalname", None) or item.name
            variants.setdefault((item.nodeid.partition("::")[0], name), []).append(item)
    left_out = []
    for (file, name), every in variants.items():
        marker = every[0].get_closest_marker("sampled")
        assert marker is not None
        order = random.Random(f"{seed} {file} {name}").sample(every, len(every))
        left_out += order[marker.args[0] :]
    gone = {id(item) for item in left_out}
    items[:] = [item for item in items if id(item) not in gone]
    return left_out


def in_order(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
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
    parser.addoption("--crash-points", default="3", help="so many crash points by chance, all, a part (2/6), or names")
    parser.addoption("--all-variants", action="store_true", help="of tests marked `sampled`, try every variant")
    parser.addoption("--write-durations", action="store_true", help="write tests/durations.txt again")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    spent[unit_of(report.nodeid)] += report.duration
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:  # at once: the reasons follow at the end
        print(f"\nfailed: {report.nodeid} ({report.when})", flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--all-variants"):
        seed = os.environ["ISTHMUS_TEST_SEED"]
        terminalreporter.line(
            f"by chance: ISTHMUS_TEST_SEED={seed} repeats this choice, --all-variants tries everything"
        )


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
