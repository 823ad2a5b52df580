"""Locations for stores: a SQLite file, a private PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.store.base import Store
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.kubernetes_store import emptied
from isthmus.testing.postgres import Postgres


class DataLocation:
    """Data at one location; closes what was opened on it."""

    def __init__(self, location: str | Path, schema: str = "isthmus") -> None:
        self.location = location
        self._schema = schema
        self._opened: list[Store] = []

    async def open(self, settings: StoreSettings | None = None) -> Store:
        store = await open_store(self.location, replace(settings or StoreSettings(), schema=self._schema))
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres(durable=False) as server:
        yield server


@pytest.fixture
async def sqlite_location(tmp_path: Path) -> AsyncIterator[DataLocation]:
    location = DataLocation(tmp_path / "data" / "isthmus.db")
    yield location
    await location.close()


@pytest.fixture
async def postgres_location(postgres: Postgres) -> AsyncIterator[DataLocation]:
    location = DataLocation(postgres.url, f"t_{uuid.uuid4().hex}")
    yield location
    await location.close()


@pytest.fixture
async def kubernetes_location(kubernetes_api: LabControlPlane) -> AsyncIterator[DataLocation]:
    await emptied(kubernetes_api.kubeconfig)
    location = DataLocation(f"kubernetes:{kubernetes_api.kubeconfig}")
    yield location
    await location.close()
