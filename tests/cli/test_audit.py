"""`isthmus audit`, on a real server: what was done is found, and what was done to the log too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .conftest import Call, Server


def test_the_log_is_searched_and_checked(isthmus: Call, server: Server, tmp_path: Path) -> None:
    assert isthmus("tenants", "create", "traced").returncode == 0
    found = isthmus("audit", "--resource", "tenants", "--name", "traced", "--since", "1h", "-o", "json")
    (entry,) = json.loads(found.stdout)["items"]
    assert (entry["user"], entry["verb"], entry["outcome"]) == ("admin", "create", "allowed")
    assert "create tenants traced" in isthmus("audit").stdout
    assert "neither a duration" in isthmus("audit", "--since", "soon").stderr

    intact = isthmus("audit", "verify", "-o", "json")
    assert (intact.returncode, json.loads(intact.stdout)["intact"]) == (0, True)
    noted = isthmus("audit", "verify").stdout.split()[-1]
    copy = tmp_path / "copy"
    shutil.copytree(server.data / "files" / "audit", copy)
    assert isthmus("audit", "verify", "--folder", str(copy), "--noted", noted).returncode == 0
    (log,) = copy.rglob("*.log")
    log.write_bytes(log.read_bytes().replace(b'"traced"', b'"forged"', 1))
    damaged = isthmus("audit", "verify", "--folder", str(copy))
    assert (damaged.returncode, damaged.stdout.split(":")[0]) == (1, "DAMAGED")
    assert "was changed" in damaged.stderr
    shutil.rmtree(log.parent)
    assert isthmus("audit", "verify", "--folder", str(copy), "--noted", noted).returncode == 1
