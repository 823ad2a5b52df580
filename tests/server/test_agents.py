"""A machine joins a control plane, runs its jobs, and goes on when either of them is away: through the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.testing.agent_processes import AgentMachine
from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "control")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other accounts can pass through to, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(open_folder: Path) -> Iterator[AgentMachine]:
    """Without a sandbox, so that jobs leave marks outside of Isthmus."""
    found = AgentMachine(open_folder / "machine")
    found.place.make()
    found.place.rules.write_text('isolation = "None"\n')
    yield found
    found.clean()


def isthmus(server: ServerProcess, *words: str, good: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    env["ISTHMUS_CA_FILE"] = str(server.data / "tls" / "ca.pem")
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.cli", *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode == 0) is good, done.stderr
    return done


def agent(server: ServerProcess, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in server.request("/agents")["items"] if one["name"] == name)
    return found


def phase(server: ServerProcess, site: str) -> str:
    status = server.request(f"/apis/isthmus.dev/v1/sites/{site}").get("status") or {}
    return str(status.get("phase"))


def invite(server: ServerProcess, name: str, *more: str) -> dict[str, str]:
    said = isthmus(server, "agents", "invite", "--name", name, "-o", "json", *more).stdout
    found: dict[str, str] = json.loads(said)
    return found


def test_a_machine_joins_runs_a_job_and_both_sides_may_go_away(
    server: ServerProcess, machine: AgentMachine, open_folder: Path, tmp_path: Path
) -> None:
    invited = invite(server, "edge-1")
    assert invited["join"].startswith(f"isthmus agent join https://127.0.0.1:{server.port} isi_edge-1_")
    assert agent(server, "edge-1")["state"] == "Invited"

    wrong = machine.join(invited, authority="0" * 64)
    assert wrong.returncode != 0
    assert "its authority is another" in wrong.stderr
    joined = machine.join(invited)
    assert joined.returncode == 0, joined.stderr
    again = AgentMachine(tmp_path / "other").join(invited)
    assert again.returncode != 0
    assert "unknown, used or expired" in again.stderr

    machine.start()
    eventually(lambda: phase(server, "edge-1") == "Ready", timeout=60)
    (seen,) = json.loads(isthmus(server, "agents", "-o", "json").stdout)["items"]
    assert (seen["state"], seen["address"]) == ("Connected", "127.0.0.1")
    assert seen["version"]
    eventually(lambda: agent(server, "edge-1")["roundTripSeconds"] is not None, timeout=30)
    assert abs(agent(server, "edge-1")["clockOffsetSeconds"]) < 2
    site = server.request("/apis/isthmus.dev/v1/sites/edge-1")
    assert invited["invitation"].rpartition("_")[2] not in json.dumps(site), "the secret is kept nowhere"
    assert "invitation" not in site["spec"]["agent"]

    ran, gate = open_folder / "ran", open_folder / "gate"
    ran.mkdir()
    ran.chmod(0o777)
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    script = f"#!/bin/sh\nmktemp {ran}/XXXXXX; echo begun; {wait}; echo over >out; exit 7\n"
    server.submit("far", script=script, placement={"sites": ["edge-1"]}, outputs=["out"])
    eventually(lambda: server.status("far")["phase"] == "Running", timeout=60)
    server.kill()
    machine.kill()
    gate.touch()
    machine.start()
    server.start()
    eventually(lambda: server.status("far")["phase"] == "Failed", timeout=90)
    assert server.status("far")["exitCode"] == 7
    assert server.output("far").endswith("begun\n")
    assert len(list(ran.iterdir())) == 1

    machine.stop()
    eventually(lambda: phase(server, "edge-1") == "Unreachable", timeout=60)
    message = server.request("/apis/isthmus.dev/v1/sites/edge-1")["status"]["message"]
    assert "was last heard" in message
    assert agent(server, "edge-1")["state"] == "Offline"
    assert agent(server, "edge-1")["lastContact"]

    machine.start()
    eventually(lambda: phase(server, "edge-1") == "Ready", timeout=60)
    isthmus(server, "agents", "revoke", "edge-1")
    eventually(lambda: agent(server, "edge-1")["connected"] is False, timeout=30)
    assert agent(server, "edge-1")["state"] == "Revoked"
    machine.stop()
    invited = invite(server, "edge-1")
    assert machine.join(invited).returncode == 0
    machine.start()
    eventually(lambda: agent(server, "edge-1")["state"] == "Connected", timeout=60)
    isthmus(server, "agents", "remove", "edge-1")
    eventually(lambda: not server.request("/agents")["items"], timeout=60)


def test_an_invitation_expires_and_nobody_else_invites(server: ServerProcess, machine: AgentMachine) -> None:
    invited = invite(server, "edge-2", "--expires", "1s")
    eventually(lambda: machine.join(invited).returncode != 0, timeout=10)
    refused = isthmus(server, "agents", "invite", "--name", "local", good=False)
    assert "is of driver local" in refused.stderr
    for path, body in (
        ("/agents/enrol", {"invitation": "isi_edge-2_" + "x" * 43, "key": "k", "machine": "0" * 32, "signature": ""}),
        ("/agents/enrol", {"invitation": "../../x"}),
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            server.request(path, body)
        assert error.value.code in (403, 422)
        error.value.close()
