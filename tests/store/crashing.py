"""The child of the crash tests: creates objects as fast as it can and prints the name of each that is acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys

from isthmus.errors import StoreUnavailable
from isthmus.resources.kinds import JOB
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.stores import job


async def main(location: str, schema: str, prefix: str) -> None:
    store = await open_store(location, StoreSettings(schema=schema, keep_changes=200, trim_interval=0.05))

    async def create(worker: int) -> None:
        for number in range(100_000):
            name = f"{prefix}-{worker}-{number}"
            try:
                await store.create(JOB, {**job(name), "spec": {"filler": "x" * 500}})
            except StoreUnavailable:
                os.write(2, b"gone\n")
                return
            os.write(1, name.encode() + b"\n")

    await asyncio.gather(*(create(worker) for worker in range(8)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
