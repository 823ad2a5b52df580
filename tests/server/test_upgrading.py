"""A data folder of an earlier version, which let pass what this one refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB, SITE
from isthmus.store.opening import open_store
from isthmus.testing.servers import GROUP, ServerProcess, eventually

pytestmark = pytest.mark.real
ACCOUNTS = [{"tenant": "*", "user": "everybody"}]


def old_site(folder: Path, **account: Any) -> dict[str, Any]:
    slurm = {"folder": str(folder), "accounts": [{**ACCOUNTS[0], **account}]}
    return {"apiVersion": "isthmus.dev/v1", "kind": "Site", "metadata": {"name": "old"}, "spec": {
        "driver": "slurm", "slurm": slurm,
    }}  # fmt: skip


async def write(database: Path, site: dict[str, Any]) -> None:
    """As the earlier version left it: a job runs at a site that gives several people one account."""
    store = await open_store(database)
    await store.create(SITE, {**site, "status": {"phase": "Ready", "conditions": []}})
    job = validate(JOB, {"metadata": {"name": "runs", "namespace": "default"}, "spec": {"command": ["sleep", "9"]}})
    await store.create(JOB, {**job, "status": {**job["status"], "phase": "Running", "site": "old", "engineId": "7"}})
    await store.close()


def accepted(server: ServerProcess) -> dict[str, Any] | None:
    conditions = server.request(f"{GROUP}/sites/old")["status"].get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == "Accepted"), None)


def test_a_site_that_is_refused_now_says_so_and_stops_nobody_else(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    server.stop()
    asyncio.run(write(tmp_path / "data" / "isthmus.db", old_site(tmp_path)))
    server.start()
    try:
        verdict = eventually(lambda: accepted(server))
        assert (verdict["status"], verdict["reason"]) == ("False", "Invalid")
        assert "gives several people one account" in verdict["message"]
        server.submit("other", "true")
        assert server.finished("other")["phase"] == "Succeeded"
        assert server.status("runs")["phase"] == "Running", "its site is there, and nobody knows what became of it"
        mended = old_site(tmp_path, shared=True)
        server.request(f"{GROUP}/sites/old?dryRun=All", {"spec": mended["spec"]}, method="PATCH")
        server.request(f"{GROUP}/sites/old", method="DELETE")
        assert server.finished("runs")["phase"] == "Failed", "now it is gone"
    finally:
        server.stop()
