"""The OpenAPI documents: valid, complete, cached, and the same in each form."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import jsonschema
import orjson
import pytest
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator, OpenAPIV31SpecValidator

from isthmus.api.openapi import protobuf, serving
from isthmus.api.resources.targets import all_views
from isthmus.testing.apis import RunningApi

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
GROUPS = [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in all_views()]


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """A message's fields, by the wire format alone."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value

    at = 0
    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        elif key & 7 == 1:
            yield key >> 3, struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            assert key & 7 == 0
            yield key >> 3, varint()


def first(data: bytes, number: int) -> Any:
    return next(value for found, value in fields(data) if found == number)


def named(data: bytes, number: int = 1) -> dict[str, bytes]:
    pairs = [value for found, value in fields(data) if found == number]
    return {first(pair, 1).decode(): first(pair, 2) for pair in pairs}


def test_documents_are_valid() -> None:
    OpenAPIV31SpecValidator(orjson.loads(serving.whole_document().data)).validate()
    OpenAPIV2SpecValidator(orjson.loads(serving.swagger(binary=False).data)).validate()
    for group, version in all_views():
        OpenAPIV30SpecValidator(orjson.loads(serving.of_group(group, version).data)).validate()


def test_every_schema_of_the_whole_document_is_valid() -> None:
    document = orjson.loads(serving.whole_document().data)
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_says_how_it_fails() -> None:
    document = orjson.loads(serving.whole_document().data)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"]
            assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}
            codes = set(operation["responses"])
            assert {"405", "503"} <= codes, (path, method)
            if operation.get("security") != []:
                assert {"401", "403"} <= codes, (path, method)
            if method in ("post", "put", "patch"):
                assert {"409", "413", "415", "422"} <= codes, (path, method)


def test_protobuf_says_what_the_json_says() -> None:
    document = orjson.loads(serving.swagger(binary=False).data)
    data = serving.swagger(binary=True).data
    assert first(data, 1) == b"2.0"
    assert first(first(data, 2), 1) == b"Isthmus"
    paths = named(first(data, 8), 2)
    assert set(paths) == set(document["paths"])
    definitions = named(first(data, 9))
    assert set(definitions) == set(document["definitions"])
    job, wanted = definitions["dev.isthmus.v1.Job"], document["definitions"]["dev.isthmus.v1.Job"]
    spec = named(first(job, 25))["spec"]
    resources = named(first(named(first(spec, 25))["resources"], 25))
    nodes = resources["nodes"]
    described = wanted["properties"]["spec"]["properties"]["resources"]["properties"]["nodes"]
    assert described == {"type": "integer", "default": 1, "minimum": 1, "maximum": 100_000}
    assert (first(first(nodes, 22), 1), first(nodes, 9), first(nodes, 7)) == (b"integer", 1.0, 100_000.0)
    assert first(first(nodes, 5), 2) == b"1"
    extension = [pair for number, pair in fields(job) if number == 31]
    assert {first(pair, 1): orjson.loads(first(first(pair, 2), 2)) for pair in extension} == {
        b"x-kubernetes-group-version-kind": [{"group": "isthmus.dev", "version": "v1", "kind": "Job"}]
    }
    assert (
        first(named(first(job, 25))["metadata"], 1) == b"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    )


def test_protobuf_tells_old_kubectl_what_patch_can_do() -> None:
    """1.20 looks for dryRun, 1.25 and 1.26 for fieldValidation, among the query parameters of PATCH."""
    paths = named(first(serving.swagger(binary=True).data, 8), 2)
    patch = first(paths["/apis/isthmus.dev/v1/namespaces/{namespace}/jobs/{name}"], 8)
    names = set()
    for number, item in fields(patch):
        if number == 8:
            chosen = first(item, 1)
            for kind, value in fields(chosen):
                if kind == 2:
                    names |= {first(sub, 4).decode() for place, sub in fields(value) if place == 3}
    assert {"dryRun", "fieldValidation", "fieldManager"} <= names


def test_protobuf_loses_nothing_in_silence() -> None:
    with pytest.raises(KeyError):
        protobuf.encode({"swagger": "2.0", "unheardOf": 1})


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63 - 1])
def test_protobuf_numbers(value: int) -> None:
    encoded = protobuf.encode({"definitions": {"x": {"maxLength": value}}})
    assert first(named(first(encoded, 9))["x"], 11) == value


@pytest.mark.anyio
async def test_documents_need_no_token_and_are_cached(api: RunningApi) -> None:
    async with api.client("") as client:
        for path in ("/openapi.json", "/openapi/v2", "/openapi/v3", *(f"/openapi/v3/{group}" for group in GROUPS)):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            again = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/openapi/v3/apis/none/v1")).status_code == 404
        assert (await client.post("/openapi/v2")).status_code == 405
        for group, entry in (await client.get("/openapi/v3")).json()["paths"].items():
            document = await client.get(entry["serverRelativeURL"])
            assert "immutable" in document.headers["cache-control"]
            assert document.json()["components"]["schemas"], group


@pytest.mark.anyio
async def test_protobuf_only_where_it_is_asked_for(api: RunningApi) -> None:
    async with api.client("") as client:
        for accept in (PROTOBUF, f"application/json, {PROTOBUF}"):
            answer = await client.get("/openapi/v2", headers={"Accept": accept})
            assert answer.content == serving.swagger(binary=True).data
        assert (await client.get("/openapi/v2", headers={"Accept": "text/html"})).status_code == 406
        v3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
        assert (await client.get("/openapi/v3", headers={"Accept": v3})).status_code == 406
        assert (await client.get("/openapi/v3", headers={"Accept": f"{v3}, application/json"})).status_code == 200


@pytest.mark.anyio
async def test_every_path_is_served(api: RunningApi) -> None:
    """What is described is there: no path answers that it is not known."""
    document = orjson.loads(serving.whole_document().data)
    async with api.client("admin") as client:
        for path, item in document["paths"].items():
            address = path.format(namespace="physics", name="n", digest="sha256:" + "0" * 64, path="p")
            for method in item:
                answer = await client.request(method, address, params={"dryRun": "All"})
                assert answer.status_code != 405, (method, path)
                assert "could not find the requested resource" not in answer.text, (method, path)
