"""A tenant that fills its storage, by whatever: nothing more starts, what ran is kept, and deleting makes room."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.resources.work.trees import digest_of
from isthmus.testing.servers import GROUP, ServerProcess, eventually

pytestmark = pytest.mark.real
MIB = 2**20


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data")
    server.start()
    spec = {"quota": {"storage": "8Mi"}}
    body = {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": "greedy"}, "spec": spec}
    server.request(f"{GROUP}/tenants", body)
    yield server
    server.stop()


def used(server: ServerProcess, part: str) -> int:
    """Bytes, once they were measured."""
    status: dict[str, Any] = server.request(f"{GROUP}/tenants/greedy")["status"]
    return int((status.get("storage") or {}).get(part) or 0)


def writes(command: str, server: ServerProcess, name: str, **spec: Any) -> None:
    server.submit(name, "sh", "-c", command, namespace="greedy", **spec)


def test_logs_folders_and_outputs_are_one_quota(own: ServerProcess) -> None:
    writes(f"head -c {3 * MIB} /dev/urandom | base64", own, "loud")
    own.finished("loud", "greedy")
    writes(f"head -c {3 * MIB} /dev/urandom > result; sleep 600", own, "busy")
    eventually(lambda: used(own, "logsBytes") > 3 * MIB and used(own, "foldersBytes") >= 3 * MIB)
    # There is room for one more to begin, and what it leaves is kept though it is too much.
    writes(f"head -c {3 * MIB} /dev/urandom > result", own, "last", outputs=["result"])
    ended = own.finished("last", "greedy")
    assert ended["outputs"] == {**ended["outputs"], "count": 1, "bytes": 3 * MIB}
    eventually(lambda: used(own, "filesBytes") >= 3 * MIB)
    writes("true", own, "next")
    said = eventually(lambda: _told(own, "next"))["message"]
    assert "8Mi of storage is used (files and outputs 3" in said
    assert "isthmus delete job" in said
    with pytest.raises(urllib.error.HTTPError) as refused:
        own.request(f"{GROUP}/namespaces/greedy/files/{digest_of(b'{}')}", {}, method="PUT")
    assert refused.value.code == 413
    assert "isthmus tenant greedy" in json.loads(refused.value.read())["message"]
    assert "of 8Mi (files and outputs 3" in shown(own)
    # What is deleted makes room.
    for name in ("loud", "busy"):
        own.request(f"{own.jobs('greedy')}/{name}", method="DELETE")
    assert own.finished("next", "greedy")["phase"] == "Succeeded"


def shown(server: ServerProcess) -> str:
    words = [sys.executable, "-m", "isthmus.cli", "tenant", "greedy"]
    env = {"ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token, "HOME": str(server.data), "PATH": "/usr/bin:/bin"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


def _told(server: ServerProcess, name: str) -> dict[str, Any] | None:
    status = server.status(name, "greedy")
    return status if status.get("reason") == "QuotaExceeded" else None
