"""schemathesis against the running server: what it documents is what it does, for good requests and bad ones.

Bounded and repeatable: few examples per operation, always the same. Whether a value that the schema allows is also
accepted is not asked, because models check more than a schema can say (a script or a command, times, expressions).
"""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from isthmus.api.openapi import whole
from isthmus.resources.trees import Tree, TreeFile, digest_of
from isthmus.testing.apis import RunningApi

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
SETTINGS = hypothesis.settings(
    max_examples=5,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


def operations(*methods: str) -> list[Any]:
    schema = schemathesis.openapi.from_dict(whole.document())
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.method in methods]


def conforms(api: RunningApi, operation: Any, mode: GenerationMode, fixed: dict[str, str]) -> int:
    count = 0

    @SETTINGS
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        nonlocal count
        count += 1
        for name in fixed:
            if case.path_parameters and name in case.path_parameters:
                case.path_parameters[name] = fixed[name]
        response = case.call(base_url=api.url, headers={"Authorization": f"Bearer {api.tokens['admin']}"}, timeout=60)
        case.validate_response(response, checks=CHECKS)

    try:
        check()
    except hypothesis.errors.Unsatisfiable:
        return 0  # there is no wrong request where there is nothing to get wrong
    return count


# Deletions last: they also delete the tenants.
METHODS = [("get", "head"), ("post",), ("put",), ("patch",), ("delete",)]


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@pytest.mark.parametrize("methods", METHODS, ids="-".join)
async def test_the_server_does_what_it_documents(api: RunningApi, methods: tuple[str, ...]) -> None:
    found = operations(*methods)
    assert found
    total = 0
    for operation in found:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            total += await asyncio.to_thread(conforms, api, operation, mode, {})
    assert total >= 3 * len(found)


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
