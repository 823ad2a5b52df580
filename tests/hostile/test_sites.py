"""What members see of a site: what they need to use it, and not who maps where and by which keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.frame.redacting import redacted
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import SITE
from isthmus.store.base import Part
from isthmus.testing.apis import RunningApi, running_api
from isthmus.testing.servers import GROUP

pytestmark = pytest.mark.anyio

SITES = f"{GROUP}/sites"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
EVENTS = "text/event-stream"
SECRETS = ("login.example.org", "id_isthmus", "mallorys-account", "physics-group", "/shared/isthmus", "kube.conf")
SPEC: dict[str, Any] = {
    "driver": "slurm",
    "slurm": {
        "transport": "SSH",
        "folder": "/shared/isthmus",
        "accounts": [{"tenant": "physics-group", "member": "mallory", "user": "mallorys-account"}],
        "ssh": {
            "host": "login.example.org",
            "user": "isthmus",
            "keyFile": "/keys/id_isthmus",
            "knownHostsFile": "/keys/known_hosts",
        },
        "partitions": ["batch"],
    },
    "kubernetes": {"kubeconfig": "/keys/kube.conf", "image": "debian"},
    "prices": {"cpu": 2},
}
STATUS: dict[str, Any] = {
    "phase": "Unreachable",
    "message": "login.example.org does not answer",
    "capacity": {"cpus": 64, "memoryBytes": 1, "devices": {"akida": 2}},
    "queues": [{"name": "batch"}],
    "conditions": [{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "login.example.org: no"}],
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": SPEC})}
        metadata = {"name": "cluster", "labels": {"location": "IT"}, "annotations": annotations}
        made = await api.context.store.create(SITE, validate(SITE, {"metadata": metadata, "spec": SPEC}))
        await api.context.store.update(SITE, {**made.obj, "status": STATUS}, Part.STATUS)
        yield api


READS = [
    pytest.param(f"{SITES}/cluster", "application/json", id="get"),
    pytest.param(f"{SITES}/cluster", TABLE, id="a row"),
    pytest.param(SITES, "application/json", id="list"),
    pytest.param(f"{SITES}?includeObject=Object", TABLE, id="table with objects"),
    pytest.param(SITES, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", id="metadata"),
    pytest.param(f"{SITES}?watch=1&timeoutSeconds=1", "application/json", id="watch"),
    pytest.param(f"{SITES}?watch=1&timeoutSeconds=1&resourceVersion=1", "application/json", id="watch the past"),
    pytest.param(f"{SITES}?watch=1&timeoutSeconds=1&includeObject=Object", TABLE, id="watch a table"),
    pytest.param(f"{SITES}?watch=1&timeoutSeconds=1", EVENTS, id="watch as events"),
]


@pytest.mark.parametrize(("path", "accept"), READS)
async def test_in_every_form(api: RunningApi, path: str, accept: str) -> None:
    for who in ("member", "stranger"):
        async with api.client(who, {"Accept": accept}) as client:
            answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        assert "cluster" in answer.text
        assert [secret for secret in SECRETS if secret in answer.text] == []


async def test_what_they_need_is_there(api: RunningApi) -> None:
    async with api.client("viewer") as client:
        site = (await client.get(f"{SITES}/cluster")).json()
    assert site["metadata"]["labels"] == {"location": "IT"}
    assert site["spec"]["prices"]["cpu"] == 2
    assert site["spec"]["slurm"]["partitions"] == ["batch"]
    assert site["spec"]["kubernetes"]["image"] == "debian"
    assert site["status"]["phase"] == "Unreachable"
    assert site["status"]["capacity"]["devices"] == {"akida": 2}
    assert site["status"]["queues"][0]["name"] == "batch"
    assert site["status"]["conditions"][0]["reason"] == "Unreachable"


async def test_administrators_see_everything(api: RunningApi) -> None:
    async with api.client("admin") as client:
        for path in (f"{SITES}/cluster", SITES, f"{SITES}?watch=1&timeoutSeconds=1"):
            text = (await client.get(path)).text
            assert [secret for secret in SECRETS if secret not in text] == []


def test_the_stored_object_is_left_alone() -> None:
    site = validate(SITE, {"metadata": {"name": "cluster"}, "spec": SPEC, "status": STATUS})
    before = json.dumps(site)
    assert json.dumps(redacted(SITE, site)) != before
    assert json.dumps(site) == before
