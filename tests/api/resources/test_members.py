"""Whose work it is: written down when it is created, by nobody but the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

BASE = "/apis/isthmus.dev/v1/namespaces/physics"
MERGE = {"Content-Type": "application/merge-patch+json"}
JOB = {"spec": {"command": ["true"]}, "status": {"member": "forged", "submittedBy": "forged"}}
EXPERIMENT = {"spec": {"template": {"command": ["true"]}, "parameters": [{"name": "n", "values": ["1"]}]}}


@pytest.fixture(scope="module")
def ada(platform: Any) -> Iterator[httpx.Client]:
    """A member of physics, with a personal token."""
    with platform.client(platform.token("ada", None)) as client:
        yield client


def create(client: httpx.Client, plural: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"{BASE}/{plural}", json={**body, "metadata": {"name": name}})
    assert answer.status_code == 201, answer.text
    return answer.json()["status"]


def test_work_is_of_the_member_who_creates_it(ada: httpx.Client) -> None:
    assert create(ada, "jobs", "of-ada", JOB)["member"] == "ada"
    assert create(ada, "experiments", "of-ada", EXPERIMENT)["member"] == "ada"
    applied = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "spec": JOB["spec"]}
    answer = ada.patch(
        f"{BASE}/jobs/applied?fieldManager=t", json=applied, headers={"Content-Type": "application/apply-patch+yaml"}
    )
    assert answer.json()["status"]["member"] == "ada"


def test_a_token_of_the_tenant_stands_for_nobody(member: httpx.Client, tenant_admin: httpx.Client) -> None:
    assert "member" not in create(member, "jobs", "of-a-token", JOB), "its admins write any name into it"
    assert "member" not in create(tenant_admin, "jobs", "of-another-token", JOB)


def test_who_is_no_member_is_not_named_as_one(admin: httpx.Client) -> None:
    assert "member" not in create(admin, "jobs", "of-an-admin", JOB)


def test_who_submitted_it_is_said_of_everybody(ada: httpx.Client, admin: httpx.Client, member: httpx.Client) -> None:
    """So that lists know what is mine, also of an administrator; accounts follow the member alone."""
    for number, (client, user) in enumerate(((ada, "ada"), (admin, "root"), (member, "ada"))):
        assert create(client, "jobs", f"submitted-{number}", JOB)["submittedBy"] == user
    assert create(admin, "experiments", "submitted", EXPERIMENT)["submittedBy"] == "root"
    place = f"{BASE}/jobs/submitted-1"
    for path in (place, f"{place}/status"):
        answer = admin.patch(path, json={"status": {"submittedBy": "mallory"}}, headers=MERGE)
        assert (answer.status_code, answer.json()["status"]["submittedBy"]) == (200, "root"), answer.text


def test_it_stays_as_it_was_said(ada: httpx.Client, admin: httpx.Client) -> None:
    create(ada, "jobs", "stays", JOB)
    create(admin, "jobs", "nobodys", JOB)
    for name, member in (("stays", "ada"), ("nobodys", None)):
        place = f"{BASE}/jobs/{name}"
        for path, change in (
            (f"{place}/status", {"status": {"member": "mallory", "message": "seen"}}),
            (f"{place}/status", {"status": {"member": None}}),
            (place, {"status": {"member": "mallory"}, "spec": {"priority": 3}}),
        ):
            answer = admin.patch(path, json=change, headers=MERGE)
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"].get("member") == member
    forged = {"status": {"member": "mallory"}}
    assert ada.patch(f"{BASE}/jobs/stays/status", json=forged, headers=MERGE).status_code == 403
