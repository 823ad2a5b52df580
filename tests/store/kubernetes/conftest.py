"""A store in a real API server, the platform's own account there, and a line to it that can be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from isthmus.kubernetes import kubeconfigs
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.server.installing import install
from isthmus.server.manifests import rights
from isthmus.testing.faulty_lines import FaultyLine
from isthmus.testing.kubernetes_store import calling, emptied


@pytest.fixture
def admin(kubernetes_api: LabControlPlane) -> Path:
    """A kubeconfig that may do everything, on a store without objects."""
    asyncio.run(emptied(kubernetes_api.kubeconfig))
    return kubernetes_api.kubeconfig


@pytest.fixture
def operator(admin: Path, tmp_path: Path) -> Path:
    """A kubeconfig of the platform's own account, with the rights that are installed and no others."""
    asyncio.run(install(kubeconfigs.load(admin), rights()))
    config = yaml.safe_load(admin.read_text())
    config["users"][0]["user"] = {"token": asyncio.run(_token(admin))}
    path = tmp_path / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _token(admin: Path) -> str:
    async with calling(admin) as api:
        path = "/api/v1/namespaces/isthmus-system/serviceaccounts/isthmus/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str((await api.send("POST", path, "a token", body))["status"]["token"])


@pytest.fixture
async def line(kubernetes_api: LabControlPlane, tmp_path: Path) -> AsyncIterator[tuple[FaultyLine, str]]:
    """A line, and the location of the store at its end."""
    await emptied(kubernetes_api.kubeconfig)
    async with FaultyLine(kubernetes_api.url) as made:
        yield made, f"kubernetes:{made.kubeconfig(kubernetes_api.kubeconfig, tmp_path / 'line.kubeconfig')}"
