"""Environments of Python packages on a real Slurm: the person's own, beside their images, for one task or several."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.environment_words import PythonSetup
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.images.runtimes import RUNTIMES
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.testing.engines import EnvironmentContract, FolderSource, new_run_id, wait_ended, whole_log
from isthmus.testing.engines.imaging import IMAGE
from isthmus.testing.engines.packaging import MAKING
from isthmus.testing.image_archives import busybox_layer, layer, member, oci_archive
from isthmus.testing.wheels import put_demo

from .conftest import SSH_USER, USER, MakeEngine, settings_of, ssh_settings

pytestmark = [pytest.mark.anyio, pytest.mark.real]
# Enough of a Python to be found, and to show that it may write where environments are kept.
STANDS_IN = b"""#!/bin/sh
case $4 in import*) exit 0 ;; esac
echo kept >/run/isthmus/environments/mark && cat /run/isthmus/environments/mark
shift 5
exec "$@"
"""


@pytest.fixture
def wheels(lab: SlurmLab) -> Iterator[Path]:
    folder = lab.place.shared / f"wheels-{new_run_id()}"
    put_demo(folder)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class TestEnvironmentsByCommand(EnvironmentContract):
    """Slurm's commands on this machine."""


class TestEnvironmentsBySsh(EnvironmentContract):
    """Over SSH: the person makes the folder on the login node."""

    @pytest.fixture
    def settings(self, lab: SlurmLab, login: LoginNode) -> SlurmSettings:
        return ssh_settings(lab, login, service=SSH_USER)


async def test_tasks_on_two_nodes_share_one_that_is_the_persons(
    make_engine: MakeEngine, lab: SlurmLab, wheels: Path
) -> None:
    settings = replace(settings_of(lab), wheels=str(wheels))
    engine = await make_engine(settings)
    run = Run(
        new_run_id(), "n", "j", ("sh", "-c", "isthmus-demo; hostname"), python=PythonSetup(("isthmus-demo",)), nodes=2,
        tasks=2,
    )  # fmt: skip
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    log = (await whole_log(engine, run.id)).decode()
    assert end.exit_code == 0, log
    lines = [line for line in log.splitlines() if not line.startswith("isthmus:")]
    assert lines.count("demo on base") == 2
    assert len(set(lines)) == 3  # two hosts
    assert log.count(MAKING) == 1
    own = Path(settings.folder, "images", USER)
    assert own.owner() == (own / "environments").owner() == USER
    assert own.stat().st_mode & 0o077 == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(RUNTIMES))
async def test_in_an_image_the_same_folder_is_there(
    make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path, name: str
) -> None:
    engine = await make_engine(image_runtimes=(name,))
    image = oci_archive([busybox_layer(), layer(member("bin/python3", STANDS_IN, mode=0o755))])
    run = Run(new_run_id(), "n", "j", ("cat", "/etc/os-release"), image=IMAGE, python=PythonSetup(("demo",)))
    await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": image}))
    end = await wait_ended(engine, run.id)
    assert (await whole_log(engine, run.id), end.exit_code) == (b"kept\nID=tiny\n", 0)
    assert Path(settings.folder, "images", USER, "environments", "mark").exists()
