"""What if, over HTTP: who may ask, what is answered, and that nothing changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from isthmus._kit.clock import timestamp, utcnow
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import JobSpec
from isthmus.resources.kinds import DEVICE_CLASS, PROFILE, SITE
from isthmus.scheduling.planning.workloads import workload_of
from isthmus.store.base import Part
from isthmus.testing.apis import TENANT_NAME, RunningApi

pytestmark = pytest.mark.anyio

PLANS = f"/apis/isthmus.dev/v1/namespaces/{TENANT_NAME}/plans"
OTHER = "elsewhere"


def due(**ahead: float) -> str:
    return timestamp(utcnow() + timedelta(**ahead))


async def site(api: RunningApi, **devices: int) -> None:
    """A site that is ready, with a price for its boards."""
    store = api.context.store
    obj = {"metadata": {"name": "lab"}, "spec": {"driver": "local", "prices": {"devices": {"gpu": 6}}}}
    record = await store.create(SITE, validate(SITE, {"kind": "Site", **obj}))
    capacity = {"cpus": 4, "memoryBytes": 2**33, "devices": devices}
    status = {"phase": "Ready", "capacity": capacity}
    await store.update(SITE, validate(SITE, {**record.obj, "status": status}), Part.STATUS)
    await store.create(DEVICE_CLASS, validate(DEVICE_CLASS, {"kind": "DeviceClass", "metadata": {"name": "gpu"}}))


async def ask(api: RunningApi, who: str = "viewer", **spec: Any) -> tuple[int, dict[str, Any]]:
    async with api.client(who) as client:
        answer = await client.post(PLANS, json={"spec": spec})
    return answer.status_code, answer.json()


def template(**more: Any) -> dict[str, Any]:
    resources = {"anyOf": [{"class": "gpu", "counts": [1, 2]}]}
    return {"command": ["train"], "deadline": due(hours=1), "resources": resources, **more}


async def test_the_answer_has_the_choice_and_the_alternatives_and_nothing_is_stored(api: RunningApi) -> None:
    await site(api, gpu=2)
    before = await api.context.store.version()
    profile = [{"class": "gpu", "count": 1, "duration": "30m"}]
    code, found = await ask(api, template=template(profile=profile))
    assert code == 201
    plan = found["status"]
    assert (plan["chosen"]["site"], plan["chosen"]["class"], plan["chosen"]["count"]) == ("lab", "gpu", 1)
    assert (plan["chosen"]["cost"], plan["chosen"]["meetsDeadline"]) == (3.0, True)
    assert [option["count"] for option in plan["alternatives"]] == [2]
    assert plan["alternatives"][0]["source"] == "Model"
    assert await api.context.store.version() == before


async def test_only_people_of_the_tenant_may_ask(api: RunningApi) -> None:
    assert (await ask(api, "stranger", template=template()))[0] == 403
    assert (await ask(api, "", template=template()))[0] == 401


async def test_past_runs_of_another_tenant_are_not_known(api: RunningApi) -> None:
    await site(api, gpu=2)
    digest = workload_of(JobSpec.model_validate(template()))
    points = [{"class": "gpu", "count": 1, "seconds": [60.0, 61.0, 62.0]}]

    async def remember(namespace: str) -> None:
        obj = {"kind": "Profile", "metadata": {"name": digest, "namespace": namespace}, "spec": {"points": points}}
        await api.context.store.create(PROFILE, validate(PROFILE, obj))

    await remember(OTHER)
    assert (await ask(api, template=template()))[1]["status"]["chosen"]["source"] == "Assumed"
    await remember(TENANT_NAME)
    chosen = (await ask(api, template=template()))[1]["status"]["chosen"]
    assert (chosen["source"], chosen["seconds"]) == ("PastRuns", 61.0)


async def test_another_deadline_for_a_job_that_there_is(api: RunningApi) -> None:
    await site(api, gpu=2)
    profile = [{"class": "gpu", "count": n, "duration": d} for n, d in ((1, "50m"), (2, "40m"))]
    await api.create_job("waits", template(profile=profile))
    assert (await ask(api, job="waits"))[1]["status"]["chosen"]["count"] == 1
    sooner = (await ask(api, job="waits", deadline=due(minutes=45)))[1]["status"]
    assert (sooner["chosen"]["count"], sooner["chosen"]["meetsDeadline"]) == (2, True)
    never = (await ask(api, job="waits", deadline=due(minutes=1), lateCostPerHour=0))[1]["status"]
    assert (never["chosen"]["count"], never["chosen"]["meetsDeadline"]) == (1, False)


async def test_bad_questions_say_what_is_wrong(api: RunningApi) -> None:
    await site(api, gpu=2)
    assert (await ask(api))[0] == 422
    assert (await ask(api, job="a", template=template()))[0] == 422
    assert (await ask(api, job="nobody"))[0] == 404
    code, found = await ask(api, template=template(profile=[{"class": "tpu", "duration": "1h"}]))
    assert code == 422
    assert "profile names tpu, but the job may use gpu" in found["message"]
    twice = [{"class": "gpu", "duration": "1h"}, {"class": "gpu", "duration": "2h"}]
    assert "contradicts itself" in (await ask(api, template=template(profile=twice)))[1]["message"]
    code, found = await ask(api, template={**template(), "deadline": None})
    assert code == 422
    assert "anyOf needs a deadline" in found["message"]
    quantum = {**template(), "resources": {"anyOf": [{"class": "quantum"}]}}
    assert "lab: it has no quantum" in (await ask(api, template=quantum))[1]["status"]["message"]
    await api.create_job("over", phase="Succeeded")
    assert (await ask(api, job="over"))[0] == 409
