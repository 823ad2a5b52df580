"""Log, metrics and outputs of every kind that has runs: its own, or those of the jobs that it is made of."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.runs.finding import kinds_with_runs
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB
from isthmus.store.base import Record
from isthmus.testing.apis import RunningApi

pytestmark = pytest.mark.anyio
BASE = "/apis/isthmus.dev/v1/namespaces/physics"


async def an_experiment(api: RunningApi, name: str) -> Record:
    spec = {"template": {"command": ["x"]}, "parameters": [{"name": "x", "values": ["1"]}]}
    meta = {"name": name, "namespace": "physics"}
    obj = {"apiVersion": EXPERIMENT.api_version, "kind": "Experiment", "metadata": meta, "spec": spec}
    return await api.context.store.create(EXPERIMENT, validate(EXPERIMENT, obj))


async def a_run(api: RunningApi, name: str, owner: Record | None) -> Record:
    meta: dict[str, Any] = {"name": name, "namespace": "physics"}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": EXPERIMENT.api_version, "kind": "Experiment", "name": owner.key.name, "uid": owner.uid}
        ]
    status = {"phase": "Running", "site": "here", "startedAt": "2026-01-01T00:00:00Z"}
    obj = {"apiVersion": JOB.api_version, "kind": "Job", "metadata": meta, "spec": {"command": ["x"]}, "status": status}
    record = await api.context.store.create(JOB, validate(JOB, obj))
    await api.change_job(name, **status)
    api.logs.write(record.uid, f"of {name}\n".encode())
    return record


def test_jobs_and_what_is_made_of_jobs_have_runs() -> None:
    assert {kind.name for kind in kinds_with_runs()} >= {"Job", "Experiment"}


async def test_the_only_run_need_not_be_named(api: RunningApi) -> None:
    one = await an_experiment(api, "one")
    async with api.client("member") as client:
        assert (await client.get(f"{BASE}/experiments/one/log")).status_code == 404
        await a_run(api, "mine", one)
        await a_run(api, "alone", None)
        assert (await client.get(f"{BASE}/experiments/one/log")).text == "of mine\n"
        assert (await client.get(f"{BASE}/experiments/one/metrics")).json()["metadata"]["name"] == "mine"
        assert "mine has no outputs yet" in (await client.get(f"{BASE}/experiments/one/outputs")).text


async def test_of_several_one_is_named_and_others_are_not_its_own(api: RunningApi) -> None:
    two, other = await an_experiment(api, "two"), await an_experiment(api, "other")
    for name, owner in (("a", two), ("b", two), ("c", other), ("d", None)):
        await a_run(api, name, owner)
    async with api.client("member") as client:
        answer = await client.get(f"{BASE}/experiments/two/log")
        assert (answer.status_code, "has several runs" in answer.text) == (422, True)
        assert (await client.get(f"{BASE}/experiments/two/log", params={"run": "b"})).text == "of b\n"
        for not_its_own in ("c", "d", "nobody"):
            answer = await client.get(f"{BASE}/experiments/two/log", params={"run": not_its_own})
            assert answer.status_code == 404
        missing = await client.get(f"{BASE}/experiments/two/outputs/a.csv", params={"run": "b"})
        assert missing.status_code == 404


async def test_those_of_another_tenant_are_forbidden_before_they_are_looked_up(api: RunningApi) -> None:
    async with api.client("member") as client:
        for part in ("log", "metrics", "outputs", "outputs/x"):
            path = f"/apis/isthmus.dev/v1/namespaces/chemistry/experiments/any/{part}"
            assert (await client.get(path)).status_code == 403
