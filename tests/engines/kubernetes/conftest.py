"""A lab that all tests of this folder share, and engines on it. Each test is a site of its own."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import RunState
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.testing.engines import wait_ended

MakeEngine = Callable[..., Awaitable[KubernetesEngine]]
AKIDA = DeviceClass.model_validate(
    {
        "metadata": {"name": "akida"},
        "spec": {"power": {"idleWatts": 1, "busyWatts": 2}, "kubernetes": {"resource": "isthmus.dev/akida"}},
    }
)


@pytest.fixture(scope="session")
def lab() -> Iterator[KubernetesLab]:
    """A cluster of two nodes; on a new machine its programs are built first."""
    folder = Path(tempfile.mkdtemp(prefix="isk-"))
    made = KubernetesLab(folder / "lab")
    try:
        made.up(2)
        yield made
    finally:
        made.down(erase=True)
        shutil.rmtree(folder)


@pytest.fixture
def settings(lab: KubernetesLab, tmp_path: Path) -> KubernetesSettings:
    """With the rights that the documentation asks for, and no more."""
    return settings_of(lab, tmp_path / "site")


def settings_of(lab: KubernetesLab, folder: Path) -> KubernetesSettings:
    return KubernetesSettings(
        folder=folder,
        site=str(uuid.uuid4()),
        kubeconfig=lab.place.site_kubeconfig,
        image=IMAGE,
        helper_image=IMAGE,
        sample_seconds=1.0,
    )


@pytest.fixture
async def make_engine(settings: KubernetesSettings) -> AsyncIterator[MakeEngine]:
    """Opens engines, all on the same site unless told otherwise; at the end nothing of theirs is left."""
    engines: list[KubernetesEngine] = []

    async def open_one(base: KubernetesSettings = settings, **changes: Any) -> KubernetesEngine:
        engine = KubernetesEngine(replace(base, **changes))
        await engine.open()
        engines.append(engine)
        return engine

    yield open_one
    if any(not engine.tasks.vital() for engine in engines):  # closed by the test itself: another one finds what it left
        await open_one()
    for engine in engines:
        if engine.tasks.vital():
            await _leave_nothing(engine)
            await engine.close()


async def _leave_nothing(engine: KubernetesEngine) -> None:
    """A run that is not forgotten keeps its pod, and the pod its share of a node."""
    for known in list(engine._known.values()):
        if known.observation().state is not RunState.ENDED:
            await engine.cancel(known.run_id, grace=0)
    for known in list(engine._known.values()):
        await wait_ended(engine, known.run_id)
        await engine.forget(known.run_id)


@pytest.fixture
async def engine(make_engine: MakeEngine) -> KubernetesEngine:
    return await make_engine()
