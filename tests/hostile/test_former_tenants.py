"""A tenant deleted and created again under the same name: the new one sees nothing of the old one's past."""

from __future__ import annotations

import httpx
import pytest

from isthmus.errors import Expired
from isthmus.resources.frame.selectors import parse_fields
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB, TENANT
from isthmus.store.base import Key, Query, Store
from isthmus.testing.servers import GROUP, ServerProcess, eventually

from .conftest import Reopen, token_of

SECRET = "the former tenant's script"


async def make(store: Store, *names: str) -> int:
    """A tenant with jobs; the version before it was made."""
    before = await store.version()
    await store.create(TENANT, validate(TENANT, {"metadata": {"name": "physics"}}))
    for name in names:
        metadata = {"name": name, "namespace": "physics"}
        await store.create(JOB, validate(JOB, {"metadata": metadata, "spec": {"command": [SECRET]}}))
    return before


async def remove(store: Store, *names: str) -> None:
    for name in names:
        await store.delete(Key(JOB.name, "physics", name))
    await store.delete(Key(TENANT.name, "", "physics"))


WATCHES = [
    pytest.param(Query(JOB, "physics"), id="of its jobs"),
    pytest.param(Query(TENANT, fields=parse_fields("metadata.name=physics", ())), id="of the tenant itself"),
]


@pytest.mark.anyio
@pytest.mark.parametrize("query", WATCHES)
@pytest.mark.parametrize("restarted", [False, True])
async def test_its_past_is_not_watched(reopen: Reopen, query: Query, restarted: bool) -> None:
    store = await reopen()
    before = await make(store, "one", "two")
    await remove(store, "one", "two")
    between = await store.version()
    await make(store, "mine")
    for number in range(10):  # beyond what is in memory
        metadata = {"name": f"other-{number}", "namespace": "biology"}
        await store.create(JOB, validate(JOB, {"metadata": metadata, "spec": {"command": ["true"]}}))
    if restarted:
        store = await reopen()
    for since in range(before, between):
        with pytest.raises(Expired, match="removed"):
            async with store.watch(query, since=since):
                pass
    async with store.watch(query, since=between) as changes:
        change = await anext(changes)
        assert change.record is not None
        assert SECRET not in str(change.record.obj) or change.record.key.name == "mine"
    async with store.watch(Query(JOB), since=before) as changes:
        assert (await anext(changes)).record is not None, "who may watch everything may watch the past"


@pytest.mark.real
def test_through_the_api(server: ServerProcess) -> None:
    tenant = {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": "again"}}
    server.request(f"{GROUP}/tenants", tenant)
    server.submit("secret", SECRET, namespace="again", intent="Hold")
    before = server.request(f"{GROUP}/namespaces/again/jobs")["metadata"]["resourceVersion"]
    server.patch("secret", "again", priority=1)
    server.request(f"{GROUP}/tenants/again", method="DELETE")

    def gone() -> bool:
        names = [item["metadata"]["name"] for item in server.request(f"{GROUP}/tenants")["items"]]
        return "again" not in names

    eventually(gone)
    server.request(f"{GROUP}/tenants", tenant)
    headers = {"Authorization": f"Bearer {token_of(server, 'viewer', 'again')}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as client:
        for plural in ("jobs", "experiments"):
            query = f"watch=1&timeoutSeconds=2&resourceVersion={before}"
            answer = client.get(f"{GROUP}/namespaces/again/{plural}?{query}")
            assert answer.status_code == 410, answer.text
            assert SECRET not in answer.text
        answer = client.get(f"/api/v1/namespaces/again/events?watch=1&timeoutSeconds=2&resourceVersion={before}")
        assert answer.status_code == 410
        assert client.get(f"{GROUP}/tenants?watch=1&timeoutSeconds=2&resourceVersion={before}").status_code == 410
        assert client.get(f"{GROUP}/namespaces/again/jobs?resourceVersion={before}").json()["items"] == []
