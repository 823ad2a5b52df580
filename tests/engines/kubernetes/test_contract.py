"""The Kubernetes engine passes the engine contract, with real pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.kubernetes import pods
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.kubernetes import kubeconfigs
from isthmus.kubernetes.client import KubernetesClient
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.testing.engines import (
    BrowseContract,
    MeasureContract,
    OpenReader,
    ReadContract,
    Reopen,
    RunContract,
    TaskContract,
    Traces,
)

from .conftest import MakeEngine

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]


@pytest.fixture
def reopen(engine: KubernetesEngine, make_engine: MakeEngine) -> Reopen:
    async def again() -> KubernetesEngine:
        await engine.close()
        return await make_engine()

    return again


@pytest.fixture
def another(make_engine: MakeEngine) -> Reopen:
    return make_engine


@pytest.fixture
def reader(settings: KubernetesSettings, tmp_path: Path) -> OpenReader:
    return KubernetesEngine(replace(settings, folder=tmp_path / "other machine")).open_to_read


@pytest.fixture
async def traces(settings: KubernetesSettings, lab: KubernetesLab) -> AsyncIterator[Traces]:
    """Every object of the site, and how often it was changed."""
    client = KubernetesClient(kubeconfigs.load(lab.place.site_kubeconfig), 30)

    async def found() -> object:
        versions = {}
        for path in ("/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"):
            objects, _ = await client.list_all(path.format(settings.namespace), f"{pods.SITE}={settings.site}")
            versions |= {(path, o["metadata"]["name"]): o["metadata"]["resourceVersion"] for o in objects}
        return versions

    yield found
    await client.close()


class TestKubernetes(RunContract, ReadContract, BrowseContract, MeasureContract, TaskContract):
    """Pods in a lab of two nodes."""
