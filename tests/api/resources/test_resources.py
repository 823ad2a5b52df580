"""Every verb on every resource, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
SPEC = {"command": ["true"]}


def job(name: str | None = None, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name} if name else {}
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": metadata | fields.pop("metadata", {}),
        "spec": SPEC,
        **fields,
    }


def test_create_fills_in_defaults_and_the_first_status(member: httpx.Client) -> None:
    sent = job("made", status={"phase": "Succeeded"}, metadata={"uid": "mine", "creationTimestamp": None})
    answer = member.post(JOBS, json=sent)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["resources"]["cpus"] == "1"
    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["namespace"] == "physics"
    assert made["metadata"]["generation"] == 1
    assert member.get(f"{JOBS}/made").json() == made


def test_names_can_be_generated(member: httpx.Client) -> None:
    sent = job(metadata={"generateName": "gen-"})
    first, second = (member.post(JOBS, json=sent).json()["metadata"]["name"] for _ in range(2))
    assert first.startswith("gen-")
    assert first != second


def test_yaml_is_taken_too(member: httpx.Client) -> None:
    text = "metadata: {name: yaml}\nspec:\n  command: [sleep, '1']\n  resources: {timeLimit: 01:30:00}\n"
    answer = member.post(JOBS, content=text, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["resources"]["timeLimit"] == "01:30:00"


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (job("x", spec={"command": ["true"], "prioritty": 1}), "spec.prioritty"),
        (job("x", spec={}), "spec"),
        (job("Bad_Name"), "metadata.name"),
        (job("../../etc/passwd"), "metadata.name"),
        (job(), "metadata.name"),
        (job("x", metadata={"namespace": "chemistry"}), "metadata.namespace"),
        (job("x", kind="Site"), "kind"),
        (job("x", apiVersion="batch/v1"), "apiVersion"),
        (job("x", metadata={"resourceVersion": "1"}), "metadata.resourceVersion"),
        (job("x", metadata={"finalizers": ["nodomain"]}), "metadata.finalizers"),
        (job("x") | {"metadata": []}, "metadata"),
        (
            job(
                "x",
                metadata={
                    "ownerReferences": [{"apiVersion": "isthmus.dev/v1", "kind": "Job", "name": "n", "uid": "u"}]
                },
            ),
            "metadata.ownerReferences",
        ),
        (job("x", metadata={"labels": {"a b": "c"}}), "metadata.labels.a b"),
    ],
)
def test_what_is_invalid_is_named(member: httpx.Client, sent: dict[str, Any], field: str) -> None:
    answer = member.post(JOBS, json=sent)
    assert answer.status_code == 422, answer.text
    status = answer.json()
    assert status["kind"] == "Status"
    assert status["reason"] == "Invalid"
    assert field in [cause["field"] for cause in status["details"]["causes"]]
    assert member.get(f"{JOBS}/x").status_code == 404


def test_a_taken_name_is_a_conflict(member: httpx.Client) -> None:
    assert member.post(JOBS, json=job("taken")).status_code == 201
    answer = member.post(JOBS, json=job("taken"))
    assert (answer.status_code, answer.json()["reason"]) == (409, "AlreadyExists")
    dry = member.post(f"{JOBS}?dryRun=All", json=job("taken"))
    assert (dry.status_code, dry.json()["reason"]) == (409, "AlreadyExists")


def test_only_promised_fields_of_a_job_may_change(member: httpx.Client) -> None:
    made = member.post(JOBS, json=job("fixed")).json()
    changed = made | {"spec": made["spec"] | {"command": ["false"], "env": [{"name": "A", "value": "b"}]}}
    answer = member.put(f"{JOBS}/fixed", json=changed)
    assert answer.status_code == 422
    assert {cause["field"] for cause in answer.json()["details"]["causes"]} == {"spec.command", "spec.env"}
    allowed = member.put(f"{JOBS}/fixed", json=made | {"spec": made["spec"] | {"priority": 7, "intent": "Hold"}})
    assert allowed.status_code == 200, allowed.text
    assert allowed.json()["spec"]["priority"] == 7
    assert allowed.json()["metadata"]["generation"] == 2


def test_of_a_job_that_has_ended_only_what_still_matters_may_change(platform: Any, member: httpx.Client) -> None:
    member.post(JOBS, json=job("ended"))
    platform.set_status("Job", "ended", "physics", phase="Succeeded")
    refused = patch(member, f"{JOBS}/ended", {"spec": {"priority": 3}})
    assert refused.status_code == 422, refused.text
    assert "'ended' is Succeeded and cannot change spec.priority" in refused.json()["message"]
    wanted = {"spec": {"ttlAfterFinished": "1h", "intent": "Cancel"}}
    assert patch(member, f"{JOBS}/ended", wanted).status_code == 200


def test_update_obeys_the_version(member: httpx.Client) -> None:
    first = member.post(JOBS, json=job("versioned")).json()
    labelled = first | {"metadata": first["metadata"] | {"labels": {"a": "b"}}}
    assert member.put(f"{JOBS}/versioned", json=labelled).status_code == 200
    stale = member.put(f"{JOBS}/versioned", json=labelled)
    assert (stale.status_code, stale.json()["reason"]) == (409, "Conflict")
    blind = {**labelled, "metadata": {"name": "versioned", "labels": {"c": "d"}}}
    assert member.put(f"{JOBS}/versioned", json=blind).json()["metadata"]["labels"] == {"c": "d"}
    other = {**blind, "metadata": {"name": "versioned", "uid": "another"}}
    assert member.put(f"{JOBS}/versioned", json=other).status_code == 409
    assert member.put(f"{JOBS}/nobody", json=job("nobody")).status_code == 404
    assert member.put(f"{JOBS}/versioned", json=job("renamed")).status_code == 422


def test_an_update_that_changes_nothing_makes_no_version(member: httpx.Client) -> None:
    made = member.post(JOBS, json=job("same")).json()
    again = member.put(f"{JOBS}/same", json=made)
    assert again.json()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def patch(client: httpx.Client, url: str, body: Any, kind: str = "merge-patch+json") -> httpx.Response:
    return client.patch(url, content=json.dumps(body), headers={"Content-Type": f"application/{kind}"})


def test_patches(member: httpx.Client) -> None:
    member.post(JOBS, json=job("patched"))
    url = f"{JOBS}/patched"
    assert (
        patch(member, url, {"spec": {"priority": 3}, "metadata": {"labels": {"a": "b"}}}).json()["spec"]["priority"]
        == 3
    )
    operations = [{"op": "test", "path": "/spec/priority", "value": 3}, {"op": "remove", "path": "/metadata/labels/a"}]
    answer = patch(member, url, operations, "json-patch+json")
    assert answer.status_code == 200, answer.text
    assert "labels" not in answer.json()["metadata"]
    assert patch(member, url, operations, "json-patch+json").status_code == 422
    refused = patch(member, url, {}, "strategic-merge-patch+json")
    assert refused.status_code == 415
    assert "merge-patch" in refused.json()["message"]
    assert patch(member, url, {"metadata": {"name": "other"}}).status_code == 422
    assert patch(member, url, {"metadata": {"resourceVersion": "1"}}).status_code == 409
    assert patch(member, url, {"spec": {"command": ["other"]}}).status_code == 422
    assert patch(member, url, {"spec": None}).status_code == 422
    assert patch(member, url, [{"op": "replace", "path": "", "value": 3}], "json-patch+json").status_code == 422
    assert patch(member, f"{JOBS}/nobody", {}).status_code == 404
    assert patch(member, url, [1, 2]).status_code == 400


def test_server_side_apply(member: httpx.Client, viewer: httpx.Client) -> None:
    url = f"{JOBS}/applied?fieldManager=me&force=true"
    wanted = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": "applied", "labels": {"a": "1"}},
        "spec": SPEC,
    }
    first = patch(member, url, wanted, "apply-patch+yaml")
    assert first.status_code == 201, first.text
    again = patch(member, url, wanted, "apply-patch+yaml")
    assert again.status_code == 200
    assert again.json()["metadata"]["resourceVersion"] == first.json()["metadata"]["resourceVersion"]
    wanted["metadata"] = {"name": "applied"}
    assert "labels" not in patch(member, url, wanted, "apply-patch+yaml").json()["metadata"]
    assert patch(member, f"{JOBS}/applied", wanted, "apply-patch+yaml").status_code == 400
    assert patch(viewer, url, wanted, "apply-patch+yaml").status_code == 403


@pytest.mark.parametrize("kind", ["merge-patch+json", "apply-patch+yaml"])
def test_dry_runs_change_nothing(member: httpx.Client, kind: str) -> None:
    name = f"dry-{kind[:5]}"
    made = member.post(f"{JOBS}?dryRun=All", json=job(name))
    assert made.status_code == 201
    assert made.json()["metadata"]["uid"]
    assert member.get(f"{JOBS}/{name}").status_code == 404
    kept = member.post(JOBS, json=job(name)).json()
    body = {"metadata": {"labels": {"a": "b"}}, "spec": {"priority": 1}}
    answer = patch(member, f"{JOBS}/{name}?dryRun=All&fieldManager=x", body, kind)
    assert answer.json()["spec"]["priority"] == 1
    assert answer.json()["status"] == kept["status"]
    assert member.put(f"{JOBS}/{name}?dryRun=All", json=job(name, metadata={"labels": {"x": "y"}})).status_code == 200
    assert member.request("DELETE", f"{JOBS}/{name}?dryRun=All").status_code == 200
    assert member.request("DELETE", f"{JOBS}/{name}", json={"dryRun": ["All"]}).status_code == 200
    assert member.get(f"{JOBS}/{name}").json() == kept
    assert member.post(f"{JOBS}?dryRun=Some", json=job("x")).status_code == 422


def test_status_is_for_platform_admins(admin: httpx.Client, member: httpx.Client, tenant_admin: httpx.Client) -> None:
    made = member.post(JOBS, json=job("observed")).json()
    url = f"{JOBS}/observed/status"
    body = {"status": {"phase": "Running", "site": "here"}}
    for client in (member, tenant_admin):
        assert patch(client, url, body).status_code == 403
        assert client.put(url, json=made | body).status_code == 403
    answer = patch(admin, url, body | {"spec": {"priority": 5}, "metadata": {"labels": {"a": "b"}}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"]["phase"] == "Running"
    assert answer.json()["spec"]["priority"] == 0
    assert "labels" not in answer.json()["metadata"]
    assert member.get(url).json()["status"]["site"] == "here"
    assert (
        patch(member, f"{JOBS}/observed", {"status": {"phase": "Failed"}, "spec": {"priority": 1}}).status_code == 200
    )
    assert member.get(f"{JOBS}/observed").json()["status"]["phase"] == "Running"
    replaced = answer.json() | {"status": {"phase": "Queued"}}
    assert admin.put(url, json=replaced).status_code == 409, "the version is older than the label patch"
    assert patch(admin, url, {"status": {"phase": "Nonsense"}}).status_code == 422


def test_the_platforms_finalizers_stay(admin: httpx.Client, member: httpx.Client) -> None:
    finalizer = "isthmus.dev/run"
    made = member.post(JOBS, json=job("held", metadata={"finalizers": [finalizer]})).json()
    assert "finalizers" not in made["metadata"], "a user cannot forge one"
    url = f"{JOBS}/held"
    assert patch(admin, url, {"metadata": {"finalizers": [finalizer]}}).json()["metadata"]["finalizers"] == [finalizer]
    assert patch(member, url, {"metadata": {"finalizers": None}}).json()["metadata"]["finalizers"] == [finalizer]
    assert admin.put(url, json=job("held")).json()["metadata"]["finalizers"] == [finalizer]
    marked = member.delete(url)
    assert marked.json()["kind"] == "Job"
    assert marked.json()["metadata"]["deletionTimestamp"]
    assert patch(admin, url, {"metadata": {"finalizers": None}}).status_code == 200
    assert member.get(url).status_code == 404


def test_delete_answers_with_what_was_deleted(member: httpx.Client) -> None:
    made = member.post(JOBS, json=job("gone")).json()
    wrong = member.request("DELETE", f"{JOBS}/gone", json={"preconditions": {"uid": "other"}})
    assert wrong.status_code == 409
    stale = member.request("DELETE", f"{JOBS}/gone", json={"preconditions": {"resourceVersion": "1"}})
    assert stale.status_code == 409
    assert member.request("DELETE", f"{JOBS}/gone", json={"propagationPolicy": "Sometimes"}).status_code == 422
    answer = member.request("DELETE", f"{JOBS}/gone", json={"preconditions": {"uid": made["metadata"]["uid"]}})
    assert answer.status_code == 200
    assert answer.json()["status"] == "Success"
    assert answer.json()["details"]["uid"] == made["metadata"]["uid"]
    assert member.delete(f"{JOBS}/gone").status_code == 404


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_owned_objects_follow_their_owner(member: httpx.Client, policy: str) -> None:
    owner = member.post(JOBS, json=job(f"owner-{policy.lower()}")).json()
    reference = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    child = f"child-{policy.lower()}"
    assert member.post(JOBS, json=job(child, metadata={"ownerReferences": [reference]})).status_code == 201
    assert member.delete(f"{JOBS}/{owner['metadata']['name']}?propagationPolicy={policy}").status_code == 200
    left = member.get(f"{JOBS}/{child}")
    assert left.status_code == (200 if policy == "Orphan" else 404)


def test_owners_of_another_tenant_are_refused(admin: httpx.Client, member: httpx.Client) -> None:
    foreign = admin.post("/apis/isthmus.dev/v1/namespaces/chemistry/jobs", json=job("theirs")).json()["metadata"]
    reference = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "name": foreign["name"], "uid": foreign["uid"]}
    answer = member.post(JOBS, json=job("sneaky", metadata={"ownerReferences": [reference]}))
    assert answer.status_code == 422


def test_delete_collection(member: httpx.Client) -> None:
    for i in range(3):
        member.post(JOBS, json=job(f"batch-{i}", metadata={"labels": {"batch": "yes"}}))
    answer = member.delete(f"{JOBS}?labelSelector=batch%3Dyes")
    assert answer.status_code == 200
    assert answer.json()["kind"] == "JobList"
    assert len(answer.json()["items"]) == 3
    assert member.get(f"{JOBS}?labelSelector=batch%3Dyes").json()["items"] == []
    assert member.get(f"{JOBS}?limit=1").json()["items"]


def test_lists_select_and_page(member: httpx.Client) -> None:
    for i in range(5):
        member.post(JOBS, json=job(f"paged-{i}", metadata={"labels": {"paged": "yes", "odd": str(i % 2)}}))
    names: list[str] = []
    token = ""
    while True:
        page = member.get(JOBS, params={"labelSelector": "paged=yes", "limit": 2, "continue": token}).json()
        assert page["kind"] == "JobList"
        assert page["apiVersion"] == "isthmus.dev/v1"
        assert page["metadata"]["resourceVersion"].isdigit()
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == [f"paged-{i}" for i in range(5)]
    odd = member.get(JOBS, params={"labelSelector": "odd in (1),paged"}).json()["items"]
    assert [item["metadata"]["name"] for item in odd] == ["paged-1", "paged-3"]
    one = member.get(JOBS, params={"fieldSelector": "metadata.name=paged-2,status.phase=Pending"}).json()["items"]
    assert [item["metadata"]["name"] for item in one] == ["paged-2"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=-1", 400),
        ("limit=x", 400),
        ("watch=perhaps", 400),
        ("resourceVersion=abc", 400),
        ("fieldSelector=spec.command%3Dx", 422),
        ("labelSelector=%3D%3D%3D", 422),
        ("continue=nonsense", 422),
        ("watch=1&sendInitialEvents=true", 422),
        ("resourceVersion=1&resourceVersionMatch=Exact", 410),
        ("includeObject=Most", 400),
        ("labelSelector=%ff", 400),
    ],
)
def test_bad_options_are_refused(member: httpx.Client, query: str, code: int) -> None:
    answer = member.get(f"{JOBS}?{query}")
    assert answer.status_code == code, answer.text
    assert answer.json()["kind"] == "Status"
    assert answer.json()["code"] == code


def test_tables_and_metadata(member: httpx.Client) -> None:
    member.post(JOBS, json=job("shown", metadata={"labels": {"shown": "yes"}}))
    as_table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    for url in (f"{JOBS}/shown", f"{JOBS}?labelSelector=shown"):
        found = member.get(url, headers=as_table).json()
        assert found["kind"] == "Table"
        assert found["apiVersion"] == "meta.k8s.io/v1"
        assert found["rows"][0]["cells"][:2] == ["shown", "Pending"]
        assert found["rows"][0]["object"]["metadata"]["labels"] == {"shown": "yes"}
    whole = member.get(f"{JOBS}/shown?includeObject=Object", headers=as_table).json()
    assert whole["rows"][0]["object"]["spec"]["command"] == ["true"]
    partial = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    found = member.get(f"{JOBS}?labelSelector=shown", headers=partial).json()
    assert found["kind"] == "PartialObjectMetadataList"
    assert set(found["items"][0]) == {"kind", "apiVersion", "metadata"}
    assert member.get(JOBS, headers={"Accept": "text/html"}).status_code == 406


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/isthmus.dev/v1/namespaces/physics/nothings", 404),
        ("GET", "/apis/isthmus.dev/v1/namespaces/physics/jobs/x/y/z", 404),
        ("GET", "/apis/isthmus.dev/v1/namespaces//jobs", 404),
        ("GET", "/apis/isthmus.dev/v1/jobs/x", 404),
        ("GET", "/apis/isthmus.dev/v1/namespaces/physics/sites", 404),
        ("GET", "/apis/isthmus.dev/v2/sites", 404),
        ("GET", "/apis/isthmus.dev/v1/namespaces/physics/leases", 404),
        ("GET", "/apis/isthmus.dev/v1/leases", 404),
        ("GET", f"{JOBS}/x/scale", 404),
        ("GET", "/api/v1/namespaces/physics/events/x/status", 404),
        ("GET", "/nowhere", 404),
        ("POST", "/apis/isthmus.dev/v1/jobs", 405),
        ("DELETE", "/apis/isthmus.dev/v1/jobs", 405),
        ("POST", f"{JOBS}/x", 405),
        ("PUT", JOBS, 405),
        ("DELETE", f"{JOBS}/x/status", 405),
        ("POST", "/api/v1/namespaces", 405),
        ("DELETE", "/api/v1/namespaces/physics", 405),
        ("OPTIONS", JOBS, 405),
        ("POST", "/apis", 405),
        ("POST", "/version", 405),
    ],
)
def test_what_is_not_offered_is_a_status_too(admin: httpx.Client, method: str, path: str, code: int) -> None:
    answer = admin.request(method, path)
    assert answer.status_code == code, answer.text
    if code == 405:
        assert answer.headers["Allow"]
        assert method not in answer.headers["Allow"].split(", ")
    assert answer.json()["kind"] == "Status"
    assert answer.json()["code"] == code


def test_namespaces_are_tenants(admin: httpx.Client) -> None:
    one = admin.get("/api/v1/namespaces/physics").json()
    assert one["kind"] == "Namespace"
    assert one["status"]["phase"] == "Active"
    names = [item["metadata"]["name"] for item in admin.get("/api/v1/namespaces").json()["items"]]
    assert {"chemistry", "default", "physics"} <= set(names)


def test_long_lists_are_shown_in_every_form(platform: Any, member: httpx.Client) -> None:
    for i in range(520):
        platform.create("Job", f"long-{i}", "physics", spec=SPEC, metadata={"labels": {"long": "yes"}})
    for form, rows in (("Table", "rows"), ("PartialObjectMetadataList", "items")):
        accept = {"Accept": f"application/json;as={form};v=v1;g=meta.k8s.io"}
        found = member.get(f"{JOBS}?labelSelector=long", headers=accept).json()
        assert len(found[rows]) == 520
    assert member.head(JOBS).status_code == 200
    assert len(member.delete(f"{JOBS}?labelSelector=long").json()["items"]) == 520
    assert member.get(f"{JOBS}?labelSelector=long").json()["items"] == []


def test_health_version_and_metrics(platform: Any, admin: httpx.Client, member: httpx.Client) -> None:
    with platform.client(None) as nobody:
        for path in ("/healthz", "/livez", "/readyz"):
            assert nobody.get(path).text == "ok"
        version = nobody.get("/version").json()
        assert version["gitVersion"].startswith("v1.30.0+isthmus-")
        assert (version["major"], version["minor"]) == ("1", "30")
        assert nobody.get("/metrics").status_code == 401
    assert member.get("/metrics").status_code == 403
    assert "python_info" in admin.get("/metrics").text
