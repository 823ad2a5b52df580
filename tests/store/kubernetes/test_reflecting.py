"""Following a kind of a cluster: what must be listed anew."""

from __future__ import annotations

import ssl
from typing import Any

import httpx
import pytest

from isthmus.kubernetes.answers import STORE
from isthmus.kubernetes.client import KubernetesClient
from isthmus.kubernetes.kubeconfigs import ClusterAccess
from isthmus.resources.kinds import JOB
from isthmus.store.hub import Hub
from isthmus.store.kubernetes.reflecting import Reflector
from isthmus.store.settings import StoreSettings

pytestmark = pytest.mark.anyio


async def test_a_cluster_that_was_set_back_is_listed_anew() -> None:
    api = KubernetesClient(ClusterAccess("http://server", ssl.create_default_context()), meanings=STORE)
    await api.close()
    versions = iter(("12", "5"))
    answer = {"metadata": {}}
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, json={**answer, "metadata": {"resourceVersion": next(versions)}})
    )
    api.http = httpx.AsyncClient(base_url="http://server", transport=transport)
    hub: Any = Hub(None, StoreSettings())  # type: ignore[arg-type]
    reflector = Reflector(api, JOB, hub, StoreSettings(), None)  # type: ignore[arg-type]
    hub.version = 10
    reflector._synced.set()
    await reflector._check_history()
    assert reflector._synced.is_set()
    await reflector._check_history()
    assert not reflector._synced.is_set()
    await api.close()
