"""A tenant sees nothing of another: every endpoint, every verb, and the same answer whether or not it exists."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from isthmus.api.app import create_app

BASE = "/apis/isthmus.dev/v1"
CORE = "/api/v1"
JOB = {"metadata": {"name": "secret-job"}, "spec": {"command": ["true"]}}
PATCH = {"Content-Type": "application/merge-patch+json"}

NAMESPACED = [f"{BASE}/namespaces/{{ns}}/jobs", f"{BASE}/namespaces/{{ns}}/tokens", f"{CORE}/namespaces/{{ns}}/events"]
REQUESTS: list[tuple[str, str]] = [
    *(("GET", path) for path in NAMESPACED),
    *(("GET", f"{path}?watch=1&timeoutSeconds=1") for path in NAMESPACED),
    *(("POST", path) for path in NAMESPACED),
    *(("DELETE", path) for path in NAMESPACED),
    *((method, f"{path}/secret-job") for path in NAMESPACED for method in ("GET", "PUT", "PATCH", "DELETE")),
    *((method, f"{path}/secret-job/status") for path in NAMESPACED[:2] for method in ("GET", "PUT", "PATCH")),
    *((method, f"{path}/secret-job/scale") for path in NAMESPACED[:2] for method in ("GET", "PUT", "PATCH")),
    ("GET", f"{BASE}/namespaces/{{ns}}/jobs/secret-job/log"),
    ("GET", f"{BASE}/namespaces/{{ns}}/jobs/secret-job/log?follow=true"),
    ("GET", f"{BASE}/namespaces/{{ns}}/jobs/secret-job/outputs"),
    ("GET", f"{BASE}/namespaces/{{ns}}/jobs/secret-job/files"),
    ("GET", f"{BASE}/namespaces/{{ns}}/jobs/secret-job/files/x"),
    ("POST", f"{BASE}/namespaces/{{ns}}/plans"),
    ("GET", f"{BASE}/tenants/{{ns}}"),
    ("PUT", f"{BASE}/tenants/{{ns}}"),
    ("PATCH", f"{BASE}/tenants/{{ns}}"),
    ("DELETE", f"{BASE}/tenants/{{ns}}"),
    ("GET", f"{BASE}/tenants/{{ns}}/status"),
    ("PATCH", f"{BASE}/tenants/{{ns}}/status"),
    ("GET", f"{CORE}/namespaces/{{ns}}"),
    ("GET", f"{CORE}/namespaces/{{ns}}/status"),
]


@pytest.fixture(scope="module", autouse=True)
def _foreign_things(platform: Any) -> None:
    platform.create("Job", "secret-job", "physics", spec={"command": ["true"]}, metadata={"labels": {"found": "me"}})
    platform.create("Event", "secret-event", "physics", reason="Secret", message="secret")


def answer_of(client: httpx.Client, method: str, path: str) -> httpx.Response:
    headers = PATCH if method == "PATCH" else {}
    body = json.dumps(JOB) if method in ("POST", "PUT", "PATCH") else None
    return client.request(method, path, content=body, headers=headers)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_foreign_and_missing_tenants_look_alike(stranger: httpx.Client, method: str, path: str) -> None:
    there = answer_of(stranger, method, path.format(ns="physics"))
    nowhere = answer_of(stranger, method, path.format(ns="nobody0"))
    assert there.status_code == 403, there.text
    assert there.text.replace("physics", "nobody0") == nowhere.text
    assert nowhere.status_code == 403


def test_every_other_route_of_a_namespace_looks_alike_too(platform: Any, stranger: httpx.Client) -> None:
    routes = [route for route in create_app(platform.context).routes if "{namespace}" in getattr(route, "path", "")]
    assert len(routes) >= 5, "logs, files, outputs"
    values = {"name": "secret-job", "digest": "sha256:" + "0" * 64, "path": "x"}
    for route in routes:
        for method in route.methods or ():
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            there = answer_of(stranger, method, path.format_map(values | {"namespace": "physics"}))
            nowhere = answer_of(stranger, method, path.format_map(values | {"namespace": "nobody0"}))
            assert (there.status_code, nowhere.status_code) == (403, 403), f"{method} {path}: {there.text}"
            assert there.text.replace("physics", "nobody0") == nowhere.text
            with platform.client(None) as nobody:
                assert answer_of(nobody, method, path.format_map(values | {"namespace": "physics"})).status_code == 401


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_nobody_gets_anything_without_a_token(platform: Any, method: str, path: str) -> None:
    for token in (None, "nonsense", "ist_x_y", "ist_", "ist__"):
        with platform.client(token) as nobody:
            answer = answer_of(nobody, method, path.format(ns="physics"))
            assert answer.status_code == 401
            assert answer.json()["reason"] == "Unauthorized"
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", [f"{BASE}/jobs", f"{BASE}/tokens", f"{CORE}/events"])
def test_all_namespaces_need_a_platform_role(
    platform: Any, stranger: httpx.Client, admin: httpx.Client, path: str
) -> None:
    assert stranger.get(path).status_code == 403
    assert stranger.get(f"{path}?watch=1").status_code == 403
    assert admin.get(path).status_code == 200
    with platform.client(platform.token("auditor", "viewer")) as auditor:
        assert auditor.get(path).status_code == (403 if "tokens" in path else 200)


@pytest.mark.parametrize("path", [f"{BASE}/tenants", f"{CORE}/namespaces"])
def test_tenants_are_filtered_to_ones_own(
    platform: Any, stranger: httpx.Client, admin: httpx.Client, path: str
) -> None:
    def names(client: httpx.Client, query: str = "") -> set[str]:
        return {item["metadata"]["name"] for item in client.get(f"{path}{query}").json()["items"]}

    assert names(stranger) == {"chemistry"}
    assert names(stranger, "?fieldSelector=metadata.name%3Dphysics") == set()
    assert names(stranger, "?fieldSelector=metadata.name!%3Dchemistry") == set()
    assert {"physics", "chemistry"} <= names(admin)
    with stranger.stream("GET", f"{path}?watch=1&timeoutSeconds=1") as stream:
        seen = [json.loads(line) for line in stream.iter_lines()]
    assert {event["object"]["metadata"]["name"] for event in seen} == {"chemistry"}
    with platform.client(platform.token("nobody", None)) as homeless:
        assert names(homeless) == set()
        assert homeless.get(f"{BASE}/namespaces/physics/jobs").status_code == 403
        assert homeless.get(f"{BASE}/sites").status_code == 200


def test_memberships_give_the_roles_of_a_token_without_one(platform: Any, admin: httpx.Client) -> None:
    jobs = f"{BASE}/namespaces/physics/jobs"
    with platform.client(platform.token("ada", None)) as ada:
        assert ada.get(jobs).status_code == 200
        assert ada.post(jobs, json={**JOB, "metadata": {"generateName": "a-"}}).status_code == 201
        assert ada.get(f"{BASE}/namespaces/physics/tokens").status_code == 403
        assert ada.get(f"{BASE}/namespaces/chemistry/jobs").status_code == 403
        members = {"spec": {"members": [{"user": "ada", "role": "viewer"}]}}
        assert admin.patch(f"{BASE}/tenants/physics", json=members, headers=PATCH).status_code == 200
        assert ada.post(jobs, json={**JOB, "metadata": {"generateName": "a-"}}).status_code == 403
        assert ada.get(jobs).status_code == 200
        assert admin.patch(f"{BASE}/tenants/physics", json={"spec": {"members": []}}, headers=PATCH).status_code == 200
        assert ada.get(jobs).status_code == 403


def test_what_each_role_may_do(
    viewer: httpx.Client, member: httpx.Client, tenant_admin: httpx.Client, admin: httpx.Client
) -> None:
    jobs, tokens = f"{BASE}/namespaces/physics/jobs", f"{BASE}/namespaces/physics/tokens"
    for client in (viewer, member, tenant_admin, admin):
        assert client.get(f"{jobs}/secret-job").status_code == 200
        assert client.get(f"{CORE}/namespaces/physics/events").status_code == 200
        assert client.get(f"{BASE}/sites/here").status_code == 200
        assert client.get(f"{BASE}/deviceclasses").status_code == 200
        assert client.get(f"{BASE}/tenants/physics").status_code == 200
    assert viewer.post(jobs, json=JOB).status_code == 403
    assert viewer.delete(f"{jobs}/secret-job").status_code == 403
    for client in (viewer, member):
        assert client.get(tokens).status_code == 403
    for client in (viewer, member, tenant_admin):
        site = {"metadata": {"name": "mine"}, "spec": {"driver": "local"}}
        assert client.post(f"{BASE}/sites", json=site).status_code == 403
        assert client.delete(f"{BASE}/sites/here").status_code == 403
        assert client.post(f"{BASE}/tenants", json={"metadata": {"name": "mine"}}).status_code == 403
        assert client.get(f"{BASE}/namespaces/isthmus-system/tokens").status_code == 403
        event = {"metadata": {"name": "forged"}, "reason": "X"}
        assert client.post(f"{CORE}/namespaces/physics/events", json=event).status_code == 403
    assert tenant_admin.get(tokens).status_code == 200


def test_tenant_admins_change_members_and_description_only(tenant_admin: httpx.Client, admin: httpx.Client) -> None:
    url = f"{BASE}/tenants/physics"

    def change(body: dict[str, Any]) -> int:
        return tenant_admin.patch(url, json=body, headers=PATCH).status_code

    assert change({"spec": {"members": [{"user": "ada"}], "description": "we"}}) == 200
    assert change({"metadata": {"annotations": {"a": "b"}}}) == 200
    for spec in (
        {"quota": {"jobs": 9}},
        {"suspended": True},
        {"sites": ["here"]},
        {"localAccount": {"user": "daemon"}},
    ):
        assert change({"spec": spec}) == 403
    assert change({"metadata": {"labels": {"a": "b"}}}) == 403
    assert tenant_admin.delete(url).status_code == 403
    assert admin.patch(url, json={"spec": {"quota": {"jobs": 9}}}, headers=PATCH).status_code == 200
    assert change({"spec": {"description": "still"}}) == 200


def test_tokens_give_no_more_than_their_maker_has(
    platform: Any, tenant_admin: httpx.Client, admin: httpx.Client
) -> None:
    tokens = f"{BASE}/namespaces/physics/tokens"

    def token(**spec: Any) -> dict[str, Any]:
        return {"metadata": {"generateName": "t-"}, "spec": {"user": "x", "sha256": "0" * 64, **spec}}

    assert tenant_admin.post(tokens, json=token(role="admin")).status_code == 201
    assert tenant_admin.post(tokens, json=token()).status_code == 422
    assert tenant_admin.post(tokens, json=token(secret="plain")).status_code == 422
    assert tenant_admin.post(f"{BASE}/namespaces/isthmus-system/tokens", json=token(role="viewer")).status_code == 403
    assert admin.post(f"{BASE}/namespaces/isthmus-system/tokens", json=token(role="admin")).status_code == 201
    assert admin.post(f"{BASE}/namespaces/nowhere/tokens", json=token(role="admin")).status_code == 404
    with platform.client(platform.token("boss", "member")) as boss:
        assert boss.post(f"{BASE}/namespaces/isthmus-system/tokens", json=token(role="admin")).status_code == 403


@pytest.mark.parametrize("how", ["delete", "revoke", "collection"])
def test_an_answered_revocation_holds_from_the_next_request_on(platform: Any, admin: httpx.Client, how: str) -> None:
    for _ in range(5):
        secret = platform.token("x", "viewer", "physics", description=how)
        tokens = f"{BASE}/namespaces/physics/tokens"
        name = secret.split("_")[1]
        with platform.client(secret) as client:
            assert client.get(f"{BASE}/namespaces/physics/jobs").status_code == 200
            if how == "delete":
                assert admin.delete(f"{tokens}/{name}").status_code == 200
            elif how == "revoke":
                body = {"spec": {"revoked": True}}
                assert admin.patch(f"{tokens}/{name}", json=body, headers=PATCH).status_code == 200
            else:
                assert admin.delete(f"{tokens}?fieldSelector=metadata.name%3D{name}").status_code == 200
            assert client.get(f"{BASE}/namespaces/physics/jobs").status_code == 401


def test_work_needs_a_tenant_that_may_work(platform: Any, admin: httpx.Client) -> None:
    jobs = f"{BASE}/namespaces/{{}}/jobs"
    missing = admin.post(jobs.format("nowhere"), json=JOB)
    assert missing.status_code == 404
    assert "nowhere" in missing.json()["message"]
    assert admin.post(jobs.format("isthmus-system"), json=JOB).status_code == 404
    assert admin.post(f"{BASE}/tenants", json={"metadata": {"name": "fresh"}}).status_code == 201
    assert admin.post(jobs.format("fresh"), json=JOB).status_code == 201
    suspend = {"spec": {"suspended": True}}
    assert admin.patch(f"{BASE}/tenants/fresh", json=suspend, headers=PATCH).status_code == 200
    refused = admin.post(jobs.format("fresh"), json={**JOB, "metadata": {"name": "late"}})
    assert refused.status_code == 403
    assert "suspended" in refused.json()["message"]
    held = {"metadata": {"finalizers": ["example.org/hold"]}, "spec": {"suspended": False}}
    assert admin.patch(f"{BASE}/tenants/fresh", json=held, headers=PATCH).status_code == 200
    admin.delete(f"{BASE}/tenants/fresh")
    refused = admin.post(jobs.format("fresh"), json={**JOB, "metadata": {"name": "late"}})
    assert refused.status_code == 403
    assert "deleted" in refused.json()["message"]


@pytest.mark.parametrize("name", ["isthmus-system", "kube-system", "isthmus-x", "a.b", "a" * 64, "Upper", "-x", "x-"])
def test_names_that_cannot_be_tenants(admin: httpx.Client, name: str) -> None:
    answer = admin.post(f"{BASE}/tenants", json={"metadata": {"name": name}})
    assert answer.status_code == 422, answer.text
    assert answer.json()["details"]["causes"][0]["field"] == "metadata.name"


def test_reviews_tell_the_truth(platform: Any, member: httpx.Client, admin: httpx.Client) -> None:
    def may(client: httpx.Client, **attributes: str) -> bool:
        url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = client.post(url, json={"spec": {"resourceAttributes": {"group": "isthmus.dev", **attributes}}})
        assert answer.status_code == 201
        return bool(answer.json()["status"]["allowed"])

    assert may(member, verb="create", resource="jobs", namespace="physics")
    assert not may(member, verb="create", resource="jobs", namespace="chemistry")
    assert not may(member, verb="create", resource="jobs", namespace="physics", group="batch")
    assert not may(member, verb="impersonate", resource="jobs", namespace="physics")
    assert may(admin, verb="*", resource="*", group="*")
    who = member.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={"spec": {}})
    assert who.json()["status"]["userInfo"]["username"] == "ada"
    assert "isthmus:physics:member" in who.json()["status"]["userInfo"]["groups"]
    for spec in (
        [],
        False,
        {},
        {"resourceAttributes": 1},
        {"resourceAttributes": {"verb": 1}},
        {"resourceAttributes": {}, "nonResourceAttributes": {}},
    ):
        url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert admin.post(url, json={"spec": spec}).status_code == 422, spec
    rules = admin.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json={"spec": {"namespace": 1}})
    assert rules.status_code == 422
