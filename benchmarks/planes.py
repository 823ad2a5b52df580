"""A control plane in this process, on a store of its own, without the API in front."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from isthmus.engines.base import Engine
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import Kind
from isthmus.resources.sites import Site
from isthmus.runtime.leading import Sole
from isthmus.server.control_plane import ControlPlane
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Store
from isthmus.store.opening import open_store


@asynccontextmanager
async def running_plane(
    folder: Path,
    make_engine: Callable[[Site], Awaitable[Engine]],
    objects: Mapping[tuple[Kind, str], dict[str, Any]],
    **more: Any,
) -> AsyncIterator[Store]:
    """Its store, which begins with these objects (kind and name, and what is wanted of each)."""
    store = await open_store(folder / "bench.db")
    for (kind, name), spec in objects.items():
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        await store.create(kind, validate(kind, obj))
    plane = ControlPlane(
        store=store,
        blobs=DirectoryBlobs(folder / "files"),
        engines=EngineRegistry(),
        make_engine=make_engine,
        leadership=Sole(),
        **more,
    )
    control = asyncio.create_task(plane.run())
    try:
        yield store
    finally:
        control.cancel()
        await asyncio.gather(control, return_exceptions=True)
        await store.close()
