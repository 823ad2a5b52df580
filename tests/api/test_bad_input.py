"""Requests made to hurt: a clear answer, nothing changed, and the server goes on."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.errors import NotFound
from isthmus.store.base import Key

JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
YAML = "application/yaml"
JSON = "application/json"


def deep(levels: int) -> bytes:
    return b'{"metadata":{"name":"x"},"spec":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


def bomb() -> bytes:
    lines = ["metadata: {name: x}", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines).encode()


def huge_annotations() -> bytes:
    return json.dumps({"metadata": {"name": "x", "annotations": {"a": "b" * 10_000_000}}}).encode()


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b"[]", JSON, 400),
        (b"null", JSON, 400),
        (b'{"metadata": {"name": "x"}, "spec": {"priority": NaN}}', JSON, 400),
        (b'{"metadata": {"name": "x\xff"}}', JSON, 400),
        (b'{"metadata": {"name": "\\ud800"}}', JSON, 400),
        (b'{"metadata": {"name": "x"}, "spec": {"command": ["x"], "priority": 99999999999999999999999}}', JSON, 422),
        (b'{"metadata": {"name": "x"}, "spec": {"command": ["x"], "priority": 1e400}}', JSON, 400),
        (deep(1000), JSON, 422),
        (deep(100_000), JSON, 400),
        (b"[" * 1000, YAML, 422),
        (bomb(), YAML, 422),
        (b"a: !!python/object/apply:os.system [ls]", YAML, 400),
        (b"a: b: c", YAML, 400),
        (b"\xff\xff", YAML, 400),
        (huge_annotations(), JSON, 413),
        (b"{}", "application/vnd.kubernetes.protobuf", 415),
        (b"k8s\x00", "application/octet-stream", 415),
    ],
)  # fmt: skip
def test_bodies_made_to_hurt(member: httpx.Client, body: bytes, content_type: str, code: int) -> None:
    answer = member.post(JOBS, content=body, headers={"Content-Type": content_type})
    assert answer.status_code == code, answer.text[:300]
    assert answer.json()["kind"] == "Status"
    assert answer.json()["message"]
    assert member.get(f"{JOBS}/x").status_code == 404


def test_a_body_without_length_is_bounded_too(member: httpx.Client) -> None:
    def endless() -> Any:
        for _ in range(1000):
            yield b" " * 100_000

    try:
        answer = member.post(JOBS, content=endless(), headers={"Content-Type": JSON})
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return  # refused while it was still being sent, which closes the connection
    assert answer.status_code == 413


def test_an_object_cannot_grow_beyond_the_limit_by_patches(member: httpx.Client) -> None:
    assert member.post(JOBS, json={"metadata": {"name": "grows"}, "spec": {"command": ["x"]}}).status_code == 201
    codes = set()
    for i in range(20):
        patch = {"metadata": {"annotations": {f"a{i}": "x" * 20_000}}}
        answer = member.patch(f"{JOBS}/grows", json=patch, headers={"Content-Type": "application/merge-patch+json"})
        codes.add(answer.status_code)
    assert codes == {200, 413}
    assert member.delete(f"{JOBS}/grows").status_code == 200


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fetc", "%00", "a%0Ab", "x" * 3000, "%F0%9F%92%A9", "a'; DROP TABLE objects"]
)
def test_strange_names_are_just_not_there(member: httpx.Client, name: str) -> None:
    answer = member.get(f"{JOBS}/{name}")
    assert answer.status_code in (400, 404, 405), answer.text
    assert answer.json()["kind"] == "Status"


def test_half_a_request_disturbs_nobody(platform: Any, member: httpx.Client) -> None:
    host, port = platform.url.removeprefix("http://").split(":")
    token = member.headers["Authorization"]
    with socket.create_connection((host, int(port))) as half:
        half.sendall(
            f"POST {JOBS} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: 100\r\n\r\n{{".encode()
        )
    assert member.get(JOBS).status_code == 200


def test_what_nobody_foresaw_is_logged_and_not_told(
    platform: Any, member: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(key: Key) -> Any:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(platform.store, "get", broken)
    answer = member.get(f"{JOBS}/any")
    assert answer.status_code == 500
    assert answer.json()["reason"] == "InternalError"
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


def test_a_store_that_does_not_answer_is_told_as_such(
    platform: Any, member: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.errors import StoreUnavailable

    async def full(*_: Any) -> Any:
        raise StoreUnavailable("the disk is full", retry_after=2.5)

    monkeypatch.setattr(platform.store, "create", full)
    answer = member.post(JOBS, json={"metadata": {"name": "x"}, "spec": {"command": ["x"]}})
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "3"
    assert answer.json()["details"]["code"] == "StoreUnavailable"
    monkeypatch.undo()
    monkeypatch.setattr(platform.store, "version", full)
    assert member.get("/readyz").status_code == 503
    assert member.get("/livez").status_code == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)
almost_jobs = st.fixed_dictionaries(
    {"metadata": st.just({"name": "fuzz"}) | json_values},
    optional={
        "spec": json_values
        | st.fixed_dictionaries(
            {"command": st.just(["x"])},
            optional=dict.fromkeys(("resources", "env", "array", "deadline", "retries"), json_values),
        ),
        "status": json_values,
        "kind": json_values,
        "apiVersion": json_values,
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=almost_jobs | json_values)
def test_no_document_makes_an_internal_error(platform: Any, member: httpx.Client, document: Any) -> None:
    body = json.dumps(document).encode()
    answer = member.post(f"{JOBS}?dryRun=All", content=body, headers={"Content-Type": JSON})
    assert answer.status_code in (201, 400, 409, 422), answer.text
    with pytest.raises(NotFound):
        platform.run(platform.store.get(Key("Job", "physics", "fuzz")))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=json_values, kind=st.sampled_from(["merge-patch+json", "json-patch+json", "apply-patch+yaml"]))
def test_no_patch_makes_an_internal_error(member: httpx.Client, document: Any, kind: str) -> None:
    member.post(JOBS, json={"metadata": {"name": "target"}, "spec": {"command": ["x"]}})
    answer = member.patch(
        f"{JOBS}/target?dryRun=All&fieldManager=f",
        content=json.dumps(document).encode(),
        headers={"Content-Type": f"application/{kind}"},
    )
    assert answer.status_code in (200, 400, 409, 413, 422), answer.text


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(
        st.sampled_from(["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "includeObject"]),
        st.text(max_size=20),
    )
)
def test_no_query_makes_an_internal_error(member: httpx.Client, query: dict[str, str]) -> None:
    answer = member.get(JOBS, params=query)
    assert answer.status_code in (200, 400, 410, 422), answer.text
