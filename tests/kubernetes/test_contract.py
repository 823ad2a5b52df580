"""The Kubernetes engine passes the engine contract, with real pods."""

from __future__ import annotations

import pytest

from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.testing.engines import EngineContract, Reopen

from .conftest import MakeEngine

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]


@pytest.fixture
def reopen(engine: KubernetesEngine, make_engine: MakeEngine) -> Reopen:
    async def again() -> KubernetesEngine:
        await engine.close()
        return await make_engine()

    return again


class TestKubernetes(EngineContract):
    """Pods in a lab of two nodes."""
