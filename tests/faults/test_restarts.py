"""A server that starts with thousands of jobs behind it and hundreds before it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.config import ServerSettings
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import RUN_FINALIZER
from isthmus.resources.kinds import JOB
from isthmus.server.bootstrap import admin_token
from isthmus.store.opening import open_store
from isthmus.testing.servers import ServerProcess, eventually

from .conftest import ask, memory_of

pytestmark = pytest.mark.real

FINISHED, WAITING = 5000, 500


def test_thousands_of_finished_and_hundreds_of_waiting_jobs_are_found_again(own_server: ServerProcess) -> None:
    server = own_server
    server.start()
    server.stop()
    asyncio.run(fill(server.data / "isthmus.db"))
    server.start()
    server.submit("new", script="echo ran", priority=10)
    assert server.finished("new")["phase"] == "Succeeded"
    assert memory_of(server) < 300
    reported = "?fieldSelector=status.phase%3DPending&limit=1000"
    waiting = ask(server, "GET", server.jobs() + reported).object["items"]
    assert len(waiting) == WAITING
    eventually(
        lambda: all(
            item["status"].get("message") for item in ask(server, "GET", server.jobs() + reported).object["items"]
        )
    )
    assert ask(server, "DELETE", f"{server.jobs()}?fieldSelector=status.phase%3DPending").code == 200
    eventually(lambda: not ask(server, "GET", server.jobs() + reported).object["items"])


def test_an_admin_token_that_was_deleted_does_not_come_back_with_the_next_start(own_server: ServerProcess) -> None:
    server = own_server
    server.start()
    leaked = server.token
    name = leaked.removeprefix("ist_").partition("_")[0]
    assert ask(server, "DELETE", f"/apis/isthmus.dev/v1/namespaces/isthmus-system/tokens/{name}").code == 200
    assert ask(server, "GET", server.jobs(), token=leaked).code == 401
    server.stop()
    server.start()
    assert ask(server, "GET", server.jobs(), token=leaked).code == 401
    assert server.token != leaked
    assert ask(server, "GET", server.jobs()).code == 200
    assert leaked not in (server.data / "kubeconfig").read_text()


def test_control_planes_that_share_a_token_start_at_once(tmp_path: Path) -> None:
    """Each finds that there is no token; both make it, and both go on."""

    async def start() -> list[str]:
        store = await open_store(tmp_path / "x.db")
        try:
            settings = ServerSettings(data=tmp_path)
            return await asyncio.gather(*(admin_token(store, settings) for _ in range(4)))
        finally:
            await store.close()

    assert len(set(asyncio.run(start()))) == 1


async def fill(database: Path) -> None:
    store = await open_store(database)
    try:
        finished = {"phase": "Succeeded", "site": "local", "exitCode": 0, "finishedAt": "2026-01-01T00:00:00.000Z"}
        async with asyncio.TaskGroup() as group:
            for number in range(FINISHED):
                made = job(f"done-{number}", {"command": ["true"]}, finalizers=[RUN_FINALIZER])
                group.create_task(store.create(JOB, {**made, "status": finished}))
            for number in range(WAITING):
                large = {"command": ["true"], "resources": {"cpus": str(10_000 + number % 7)}}
                group.create_task(store.create(JOB, job(f"wait-{number}", large)))
    finally:
        await store.close()


def job(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", **metadata}
    return validate(JOB, {"apiVersion": JOB.api_version, "kind": JOB.name, "metadata": meta, "spec": spec})
