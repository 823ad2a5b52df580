"""Which store a location means."""

from __future__ import annotations

from pathlib import Path

from .base import Spaces, Store
from .settings import StoreSettings
from .sqlite import SqliteStore


def store_at(location: str | Path, settings: StoreSettings | None = None) -> Store:
    """The store at a path (SQLite), a `postgresql://…` address, or a `kubernetes:…` one; not yet open."""
    if isinstance(location, str) and location.startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresStore  # needs a package that is optional

        return PostgresStore(location, settings)
    if isinstance(location, str) and location.startswith("kubernetes:"):
        from isthmus.kubernetes import kubeconfigs

        from .kubernetes import KubernetesStore

        return KubernetesStore(kubeconfigs.at(location), settings)
    return SqliteStore(Path(location), settings)


def spaces_of(store: Store) -> Spaces | None:
    """Who makes the namespaces of tenants; None where they need no making."""
    return getattr(store, "spaces", None)


async def open_store(location: str | Path, settings: StoreSettings | None = None) -> Store:
    """The same, open. The caller closes it."""
    store = store_at(location, settings)
    await store.open()
    return store
