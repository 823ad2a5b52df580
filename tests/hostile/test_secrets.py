"""What is sealed in a Secret is shown to nobody, by no patch, and opens for nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.kinds import SECRET
from isthmus.resources.secrets import Secret
from isthmus.store.base import Key
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api
from isthmus.testing.servers import GROUP

pytestmark = pytest.mark.anyio
SECRETS = f"{GROUP}/namespaces/{TENANT_NAME}/secrets"
PASSWORD = "correct horse"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
COPIES: tuple[list[dict[str, Any]], ...] = (
    [{"op": "copy", "from": "/spec/sealed", "path": "/spec/description"}],
    [{"op": "move", "from": "/spec/sealed", "path": "/spec/description"}],
    [{"op": "add", "path": "/metadata/labels", "value": {}},
     {"op": "copy", "from": "/spec/sealed", "path": "/metadata/labels/x"}],
    [{"op": "copy", "from": "/spec", "path": "/metadata/annotations"}],
    [{"op": "copy", "from": "/spec/sealed", "path": "/spec/user"}],
    [{"op": "test", "path": "/spec/sealed", "value": "v1:"}],
)  # fmt: skip


def manifest(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "mine"}, "spec": {"registry": "registry.example", "user": "ada", **spec}}


async def kept(api: RunningApi) -> Secret:
    return Secret.model_validate((await api.context.store.get(Key(SECRET.name, TENANT_NAME, "mine"))).obj)


def opened(api: RunningApi, secret: Secret) -> str | None:
    assert api.context.sealer is not None
    return api.context.sealer.open(secret.spec.sealed or "", secret.places[0])


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        async with api.client() as client:
            assert (await client.post(SECRETS, json=manifest(password=PASSWORD))).status_code == 201
        yield api


async def test_no_patch_shows_it(api: RunningApi) -> None:
    before = await kept(api)
    sealed = before.spec.sealed or "none"
    async with api.client() as client:
        for operations in COPIES:
            answer = await client.patch(f"{SECRETS}/mine", json=operations, headers=JSON_PATCH)
            assert (answer.status_code, sealed in answer.text) == (422, False), operations
            assert sealed not in (await client.get(f"{SECRETS}/mine")).text
    assert await kept(api) == before


async def test_what_is_copied_opens_for_nobody_else(api: RunningApi) -> None:
    sealed = (await kept(api)).spec.sealed
    async with api.client() as client:
        changed = await client.patch(f"{SECRETS}/mine", json={"spec": {"description": "x"}}, headers=MERGE_PATCH)
        assert changed.status_code == 200
        assert opened(api, await kept(api)) == PASSWORD
        assert (await client.delete(f"{SECRETS}/mine")).status_code == 200
        for spec in ({"shared": True}, {"registry": "evil.example"}):
            again = await client.post(SECRETS, json=manifest(sealed=sealed, **spec))
            assert (again.status_code, "sealed for this object" in again.text) == (422, True)
