"""schemathesis against objects that there are: what is answered about them is as documented."""

from __future__ import annotations

import asyncio

import pytest
from schemathesis import GenerationMode

from isthmus.resources.work.trees import Tree, TreeFile, digest_of
from isthmus.testing.apis import RunningApi

from .conforming import conforms, operations

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def test_answers_about_real_objects_conform(api: RunningApi) -> None:
    digest = digest_of(b"data")
    async with api.client() as client:
        await client.put(f"/apis/isthmus.dev/v1/namespaces/physics/files/{digest}", content=b"data")
    tree = await api.blobs.put_tree("physics", Tree(files=[TreeFile(path="p", size=4, digest=digest)]))
    outputs = {"tree": tree, "bytes": 4, "count": 1}
    job = await api.create_job("physics", phase="Succeeded", exitCode=0, outputs=outputs)
    api.logs.write(job.uid, b"line\n" * 100)
    async with api.client("admin") as client:
        for plural, spec in (("sites", {"driver": "local"}), ("deviceclasses", {"vendor": "x"})):
            body = {"metadata": {"name": "physics"}, "spec": spec}
            assert (await client.post(f"/apis/isthmus.dev/v1/{plural}", json=body)).status_code == 201
    fixed = {"namespace": "physics", "name": "physics", "digest": digest, "path": "p"}
    for operation in operations("get", "head", "put", "patch"):
        assert await asyncio.to_thread(conforms, api, operation, GenerationMode.POSITIVE, fixed)
