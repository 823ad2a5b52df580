"""A lab that all tests of this folder share, and engines on it. Each test has a folder of its own on the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import RunState
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.opening import make_engine as make
from isthmus.engines.slurm.settings import Mapped, SlurmSettings, SshSettings
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.lab.slurm.login import LoginNode
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.testing.engines import new_run_id, wait_ended
from isthmus.testing.slurm import running_slurm

MakeEngine = Callable[..., Awaitable[SlurmEngine]]
USER = "games"
"""Who runs jobs. Not nobody: slurmrestd of 26.05 takes no token of that account."""
SSH_USER = "postgres"
"""An account that every machine with the test packages has, and that has a shell."""

AKIDA = DeviceClass.model_validate(
    {
        "metadata": {"name": "akida"},
        "spec": {"power": {"idleWatts": 1, "busyWatts": 2}, "slurm": {"gres": "board:akida"}},
    }
)


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> str:
    """The Debian release whose Slurm is tried; this machine's own unless the command line names one."""
    named: str = request.config.getoption("--slurm-release")
    return named


@pytest.fixture(scope="session")
def lab(release: str) -> Iterator[SlurmLab]:
    """A plain cluster of three nodes."""
    with running_slurm(3, LabSettings(release=release)) as made:
        yield made


@pytest.fixture(scope="session")
def accounting_lab(release: str) -> Iterator[SlurmLab]:
    """One with accounting and energy counters."""
    with running_slurm(3, LabSettings(accounting=True, energy=True, release=release)) as made:
        yield made


@pytest.fixture
def settings(lab: SlurmLab) -> SlurmSettings:
    return settings_of(lab)


def settings_of(lab: SlurmLab) -> SlurmSettings:
    """The command line of a lab, with a new folder."""
    folder = lab.place.shared / new_run_id()
    conf, path = str(lab.place.conf), f"{lab.place.programs}/bin"
    return SlurmSettings(folder=str(folder), accounts=(Mapped("*", USER),), conf=conf, path=path, poll_seconds=0.25)


@pytest.fixture(scope="session")
def login(lab: SlurmLab) -> Iterator[LoginNode]:
    """The lab's login node."""
    node = LoginNode(lab.place)
    node.up([SSH_USER, "root"])
    yield node
    node.down()
    assert not node._answers(), "sshd is left behind"


def ssh_settings(lab: SlurmLab, login: LoginNode, *, service: str) -> SlurmSettings:
    """Over SSH, with a folder that the service account may make."""
    base = settings_of(lab)
    top = lab.place.shared / "ssh"
    top.mkdir(exist_ok=True)
    top.chmod(0o1777)
    ssh = SshSettings("127.0.0.1", service, str(login.folder / "{user}"), login.known_hosts, port=login.port)
    folder = str(top / Path(base.folder).name)
    return replace(base, folder=folder, transport="SSH", ssh=ssh, accounts=(Mapped("*", SSH_USER),))


@pytest.fixture
async def make_engine(settings: SlurmSettings) -> AsyncIterator[MakeEngine]:
    """Opens engines, all on the same folder unless told otherwise; at the end nothing of theirs runs."""
    engines: list[SlurmEngine] = []

    async def open_one(base: SlurmSettings = settings, **changes: Any) -> SlurmEngine:
        engine = make(replace(base, **changes))
        await engine.open()
        engines.append(engine)
        return engine

    yield open_one
    for engine in engines:
        if not engine.tasks.vital():  # closed by the test itself
            continue
        for run_id in list(engine._active):
            seen = await engine.observe(run_id)
            if seen is not None and seen.state is not RunState.ENDED:
                await engine.cancel(run_id)
        for run_id in list(engine._active):
            if await engine.observe(run_id) is not None:
                await wait_ended(engine, run_id)
        await engine.close()


@pytest.fixture
async def engine(make_engine: MakeEngine) -> SlurmEngine:
    return await make_engine()
