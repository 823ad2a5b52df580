"""Which store a location means."""

from __future__ import annotations

from pathlib import Path

from isthmus.errors import Misconfigured

from .base import Spaces, Store
from .settings import StoreSettings
from .sqlite import SqliteStore

LEASES = StoreSettings(following=False, connections=1, answer_wait=2.0, lock_wait=2.0, lookup_wait=2.0)
"""What is not answered within two seconds comes too late for a lease."""


def store_at(location: str | Path, settings: StoreSettings | None = None) -> Store:
    """The store at a path (SQLite), a `postgresql://…` address, or a `kubernetes:…` one; not yet open.

    Raises Misconfigured for the address of anything else, which would be the name of a file.
    """
    if isinstance(location, str) and location.startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresStore  # needs a package that is optional

        return PostgresStore(location, settings)
    if isinstance(location, str) and location.startswith("kubernetes:"):
        from isthmus.kubernetes import kubeconfigs

        from .kubernetes import KubernetesStore

        return KubernetesStore(kubeconfigs.at(location), settings)
    if isinstance(location, str) and "://" in location:
        scheme = location.partition("://")[0][:40]
        raise Misconfigured(
            f"there is no store for {scheme}:// addresses; write postgresql://HOST/DATABASE or kubernetes:KUBECONFIG, "
            "or name none for the embedded SQLite"
        )
    return SqliteStore(Path(location), settings)


async def open_lease_store(location: str) -> Store:
    """A second store at the same place, open, for leases alone: it has connections of its own, follows no changes, and
    belongs to the event loop that opened it. Only for stores that several may open. The caller closes it."""
    store = store_at(location, LEASES)
    await store.open()
    return store


def several_may_open(location: str | Path | None) -> bool:
    """Whether several control planes may use the store at a location; an embedded one belongs to one process."""
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://", "kubernetes:"))


def spaces_of(store: Store) -> Spaces | None:
    """Who makes the namespaces of tenants; None where they need no making."""
    return getattr(store, "spaces", None)


async def open_store(location: str | Path, settings: StoreSettings | None = None) -> Store:
    """The same, open. The caller closes it."""
    store = store_at(location, settings)
    await store.open()
    return store
