"""Both stores pass the contract."""

from __future__ import annotations

import pytest

from isthmus.store.base import Store
from isthmus.testing.store_deletions import DeletingContract
from isthmus.testing.store_logs import LogContract
from isthmus.testing.store_watches import ReplicasContract, WatchingContract
from isthmus.testing.stores import ListingContract, WritingContract, compete_for_lease

from .conftest import DataHome


class TestSqlite(WritingContract, ListingContract, DeletingContract, WatchingContract, LogContract):
    @pytest.fixture
    def home(self, sqlite_home: DataHome) -> DataHome:
        return sqlite_home

    @pytest.fixture
    async def store(self, home: DataHome) -> Store:
        return await home.open()


@pytest.mark.real
class TestPostgres(WritingContract, ListingContract, DeletingContract, WatchingContract, LogContract, ReplicasContract):
    @pytest.fixture
    def home(self, postgres_home: DataHome) -> DataHome:
        return postgres_home

    @pytest.fixture
    async def store(self, home: DataHome) -> Store:
        return await home.open()

    async def test_a_lease_across_replicas(self, home: DataHome, store: Store) -> None:
        await compete_for_lease(store, await home.open())
