"""The informer's write-through, when answers and news of the store come in an unfortunate order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key, Part
from isthmus.store.opening import open_store

pytestmark = pytest.mark.anyio
KEY = Key(JOB.name, "t", "job")


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def test_an_answer_that_comes_after_the_news_of_the_deletion_does_not_bring_the_object_back(
    tmp_path: Path,
) -> None:
    store = await open_store(tmp_path / "x.db")
    informer = Informer(store, JOB)
    seen: list[tuple[bool, bool]] = []
    informer.on_change(lambda old, new: seen.append((old is not None, new is not None)))
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced()
        meta = {"name": "job", "namespace": "t"}
        await store.create(JOB, validate(JOB, {"metadata": meta, "spec": {"command": ["true"]}}))
        await until(lambda: informer.get(KEY) is not None)
        record = informer.get(KEY)
        assert record is not None
        written = await store.update(JOB, {**record.obj, "status": {"phase": "Placed"}}, Part.STATUS)
        await store.delete(KEY)
        await until(lambda: informer.get(KEY) is None)
        informer.note(written)  # our own answer, late
        assert informer.get(KEY) is None
        assert seen[-1] == (True, False)
        # A later object of that name is seen, and the old answer does not replace it.
        await store.create(JOB, validate(JOB, {"metadata": meta, "spec": {"command": ["false"]}}))
        await until(lambda: informer.get(KEY) is not None)
        informer.note(written)
        again = informer.get(KEY)
        assert again is not None
        assert again.uid != written.uid
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
