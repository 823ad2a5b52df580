"""The store in a real API server passes the contract."""

from __future__ import annotations

import pytest

from isthmus.store.base import Store
from isthmus.store.settings import StoreSettings
from isthmus.testing.store_deletions import DeletingContract
from isthmus.testing.store_watches import ReplicasContract, WatchingContract
from isthmus.testing.stores import ListingContract, WritingContract, compete_for_lease
from tests.store.conftest import DataLocation


@pytest.mark.real
class TestKubernetes(WritingContract, ListingContract, DeletingContract, WatchingContract, ReplicasContract):
    alone = False
    at_once = False
    many = 120
    depth = (12, 12, 40)
    recent = 5000
    writes = 10

    @pytest.fixture
    def location(self, kubernetes_location: DataLocation) -> DataLocation:
        return kubernetes_location

    @pytest.fixture
    async def store(self, location: DataLocation) -> Store:
        return await location.open(StoreSettings(page=50))

    async def test_a_lease_across_replicas(self, location: DataLocation, store: Store) -> None:
        await compete_for_lease(store, await location.open())
