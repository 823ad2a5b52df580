"""Tenants apart, through a whole server: crafted tokens of lists, forged owners, tenants made again, secrets."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.tokens import new_secret
from isthmus.testing.postgres import Postgres
from isthmus.testing.servers import GROUP, ServerProcess, eventually

from .conftest import ask

pytestmark = pytest.mark.real

PASSWORD = "correct-horse-battery"


def tenant(server: ServerProcess, name: str) -> None:
    assert ask(server, "POST", f"{GROUP}/tenants", {"metadata": {"name": name}, "spec": {}}).code == 201
    eventually(lambda: ask(server, "GET", f"{GROUP}/tenants/{name}").object["status"].get("uidNumber"))


def token(server: ServerProcess, namespace: str, role: str = "member", **spec: Any) -> str:
    name, secret, digest = new_secret()
    body = {"metadata": {"name": name}, "spec": {"user": "somebody", "role": role, "sha256": digest, **spec}}
    assert ask(server, "POST", f"{GROUP}/namespaces/{namespace}/tokens", body).code == 201
    return secret


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "spec": {"command": ["true"]}}


def continue_at(version: int, namespace: str, name: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, namespace, name]).encode()).decode().rstrip("=")


def test_a_crafted_place_in_a_list_shows_only_ones_own(server: ServerProcess) -> None:
    for name in ("list-a", "list-b"):
        tenant(server, name)
        ask(server, "POST", server.jobs(name), job(f"of-{name}"))
    mine = token(server, "list-b")
    version = int(ask(server, "GET", server.jobs("list-b")).object["metadata"]["resourceVersion"])
    for place in (continue_at(version, "list-a", ""), continue_at(version, "", ""), continue_at(version, "list-b", "")):
        found = ask(server, "GET", f"{server.jobs('list-b')}?limit=500&continue={place}", token=mine)
        assert {item["metadata"]["namespace"] for item in found.object["items"]} <= {"list-b"}
        for path in (f"{GROUP}/jobs?continue={place}", f"{server.jobs('list-a')}?continue={place}"):
            assert ask(server, "GET", path, token=mine).code == 403
    for broken in ("x", "e30", continue_at(2**70, "a", "b"), continue_at(-1, "list-b", ""), "A" * 5000):
        assert ask(server, "GET", f"{server.jobs('list-b')}?continue={broken}", token=mine).code in (400, 410, 422)
    watched = ask(server, "GET", f"{server.jobs('list-b')}?watch=1&resourceVersion=1&timeoutSeconds=1", token=mine)
    assert b"list-a" not in watched.body


def test_owners_status_and_finalizers_cannot_be_forged(server: ServerProcess) -> None:
    for name in ("forge-a", "forge-b"):
        tenant(server, name)
    theirs = ask(server, "POST", server.jobs("forge-a"), job("theirs")).object["metadata"]
    mine = token(server, "forge-b")
    owner = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "name": "theirs", "uid": theirs["uid"]}
    real = ask(server, "POST", server.jobs("forge-b"), job("child", ownerReferences=[owner]), token=mine)
    unreal = ask(
        server, "POST", server.jobs("forge-b"), job("child", ownerReferences=[{**owner, "uid": "none"}]), token=mine
    )
    assert real.code == unreal.code == 422
    assert real.body.replace(theirs["uid"].encode(), b"none") == unreal.body
    forged = {
        **job("forged", finalizers=["isthmus.dev/run"], uid=theirs["uid"], creationTimestamp="2000-01-01T00:00:00Z"),
        "status": {"phase": "Succeeded", "site": "local", "exitCode": 0},
    }
    made = ask(
        server, "POST", server.jobs("forge-b"), {**forged, "spec": {"command": ["true"], "intent": "Hold"}}, token=mine
    )
    assert made.code == 201
    assert made.object["status"]["phase"] == "Pending"
    assert made.object["metadata"]["uid"] != theirs["uid"]
    assert "finalizers" not in made.object["metadata"]
    path = f"{server.jobs('forge-b')}/forged"
    for method, where in (("PUT", f"{path}/status"), ("PATCH", f"{path}/status")):
        assert ask(server, method, where, forged, token=mine).code == 403
    ask(server, "PATCH", path, {"status": {"phase": "Succeeded"}}, token=mine)
    assert ask(server, "GET", path).object["status"]["phase"] == "Pending"


def test_nobody_makes_more_of_a_token_than_they_have(server: ServerProcess) -> None:
    tenant(server, "climb")
    boss, member = token(server, "climb", "admin"), token(server, "climb", "member")
    _, _, digest = new_secret()
    spec = {"user": "me", "role": "admin", "sha256": digest}
    tries = [
        (member, f"{GROUP}/namespaces/climb/tokens"),
        (member, f"{GROUP}/namespaces/default/tokens"),
        (member, f"{GROUP}/namespaces/isthmus-system/tokens"),
        (boss, f"{GROUP}/namespaces/isthmus-system/tokens"),
        (boss, f"{GROUP}/namespaces/default/tokens"),
    ]
    for secret, path in tries:
        assert ask(server, "POST", path, {"metadata": {"name": "more"}, "spec": spec}, token=secret).code == 403
    change = {"spec": {"localAccount": {"user": "daemon"}, "quota": {"jobs": 10**6}}}
    assert ask(server, "PATCH", f"{GROUP}/tenants/climb", change, token=boss).code == 403
    assert ask(server, "PATCH", f"{GROUP}/tenants/climb", change, token=member).code == 403
    for user in ("root", "0"):
        answer = ask(server, "PATCH", f"{GROUP}/tenants/climb", {"spec": {"localAccount": {"user": user}}})
        assert answer.code == 422


def test_a_tenant_made_again_sees_nothing_of_the_one_before(server: ServerProcess) -> None:
    tenant(server, "phoenix")
    old = token(server, "phoenix")
    for number in range(5):
        server.submit(f"old-{number}", script="echo old; sleep 600", namespace="phoenix", resources={"cpus": "0.1"})
    eventually(lambda: server.status("old-0", "phoenix")["phase"] == "Running")
    before = ask(server, "GET", f"{GROUP}/tenants/phoenix").object
    ended = threading.Event()

    def follow() -> None:
        ask(server, "GET", f"{server.jobs('phoenix')}/old-0/log?follow=true", token=old)
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    assert ask(server, "DELETE", f"{GROUP}/tenants/phoenix").code == 200
    refused = ask(server, "POST", server.jobs("phoenix"), job("too-late"))
    assert refused.code in (403, 404)
    eventually(lambda: ask(server, "GET", f"{GROUP}/tenants/phoenix").code == 404)
    assert ended.wait(30), "the stream outlived its tenant"
    assert ask(server, "GET", server.jobs("phoenix"), token=old).code == 401
    tenant(server, "phoenix")
    after = ask(server, "GET", f"{GROUP}/tenants/phoenix").object
    assert after["status"]["uidNumber"] != before["status"]["uidNumber"]
    assert ask(server, "GET", server.jobs("phoenix"), token=old).code == 401
    new = token(server, "phoenix")
    assert ask(server, "GET", server.jobs("phoenix"), token=new).object["items"] == []
    events = ask(server, "GET", "/api/v1/namespaces/phoenix/events", token=new).object["items"]
    assert [event["involvedObject"]["name"] for event in events] == []
    assert ask(server, "GET", f"{server.jobs('phoenix')}/old-0/log", token=new).code == 404
    left = [path for path in (server.data / "sites/local/runs").iterdir() if b"phoenix" in _launcher(path)]
    assert left == []


def _launcher(run: Path) -> bytes:
    try:
        return (run / "launch/launcher").read_bytes()
    except OSError:
        return b""


def test_nothing_secret_is_in_the_log_of_the_program_or_the_list_of_processes(tmp_path: Path) -> None:
    with Postgres(durable=False) as database:
        head, _, tail = database.url.partition("://")
        user, _, place = tail.rpartition("@")
        url = f"{head}://{user.partition(':')[0] or 'postgres'}:{PASSWORD}@{place}"
        server = ServerProcess(tmp_path / "data", environment={"ISTHMUS_STORE": url})
        words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(server.data), "--log-level", "DEBUG"]
        words += ["--listen", f"127.0.0.1:{server.port}"]
        with server.log.open("ab") as log:
            server.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"ISTHMUS_STORE": url, "PATH": "/usr/bin:/bin"},
            )
        try:
            eventually(server.ready, timeout=60)
            secret = token(server, "default")
            basic = base64.b64encode(f"x:{secret}".encode()).decode()
            assert ask(server, "GET", server.jobs(), token="", Authorization=f"Basic {basic}").code == 200
            assert ask(server, "GET", server.jobs(), token=secret + "x").code == 401
            body = {
                "metadata": {"name": "env"},
                "spec": {"command": ["true"], "env": [{"name": "KEY", "value": PASSWORD * 2}]},
            }
            assert ask(server, "POST", server.jobs(), body, token=secret).code == 201
            eventually(lambda: server.status("env")["phase"] == "Succeeded")
            with socket.create_connection(("127.0.0.1", server.port)) as raw:
                raw.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret}\nbroken\r\n\r\n".encode())
                raw.recv(100)
            listed = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        finally:
            server.stop()
        text = server.log.read_text()
        for hidden in (PASSWORD, secret, server.token, basic):
            assert hidden not in text
            assert hidden.encode() not in listed
