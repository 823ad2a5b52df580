"""Both stores pass the contract."""

from __future__ import annotations

import pytest

from isthmus.store.base import Store
from isthmus.testing.store_deletions import DeletingContract
from isthmus.testing.store_logs import LogContract
from isthmus.testing.store_watches import ReplicasContract, WatchingContract
from isthmus.testing.stores import ListingContract, WritingContract, compete_for_lease

from .conftest import DataLocation


class TestSqlite(WritingContract, ListingContract, DeletingContract, WatchingContract, LogContract):
    @pytest.fixture
    def location(self, sqlite_location: DataLocation) -> DataLocation:
        return sqlite_location

    @pytest.fixture
    async def store(self, location: DataLocation) -> Store:
        return await location.open()


@pytest.mark.real
class TestPostgres(WritingContract, ListingContract, DeletingContract, WatchingContract, LogContract, ReplicasContract):
    @pytest.fixture
    def location(self, postgres_location: DataLocation) -> DataLocation:
        return postgres_location

    @pytest.fixture
    async def store(self, location: DataLocation) -> Store:
        return await location.open()

    async def test_a_lease_across_replicas(self, location: DataLocation, store: Store) -> None:
        await compete_for_lease(store, await location.open())
