"""Comparisons from the command line to real processes and back, also through `kill -9`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isthmus import Client
from isthmus.errors import Forbidden
from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real
API = "/apis/isthmus.dev/v1"
EXPERIMENTS = f"{API}/namespaces/default/experiments"

PROGRAM = """
import json, os
board = os.environ["PARAM_device"] == "board"
print("isthmus:", json.dumps({"accuracy": 0.5 if board else 0.9}))
open("same.txt", "w").write("the same everywhere")
json.dump({"images": 100}, open("more.json", "w"))
"""


def isthmus(server: ServerProcess, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    return subprocess.run(
        [sys.executable, "-m", "isthmus.cli", *words], env=env, cwd=folder, capture_output=True, text=True, timeout=100
    )


def with_board(server: ServerProcess) -> None:
    spec = {"vendor": "Acme", "power": {"idleWatts": 1, "busyWatts": 5}}
    server.request(f"{API}/deviceclasses", {"kind": "DeviceClass", "metadata": {"name": "board"}, "spec": spec})
    site = {
        "driver": "local",
        "devices": [{"class": "board", "count": 1}],
        "prices": {"cpu": 2, "devices": {"board": 3}},
    }
    meta = {"name": "corner"}
    server.request(f"{API}/sites", {"kind": "Site", "metadata": meta, "spec": site})
    eventually(lambda: server.request(f"{API}/sites/corner")["status"].get("phase") == "Ready")


def finished(server: ServerProcess, name: str) -> dict[str, Any]:
    def end() -> dict[str, Any] | None:
        status: dict[str, Any] = server.request(f"{EXPERIMENTS}/{name}")["status"]
        return status if status["phase"] in ("Succeeded", "Failed", "Cancelled") else None

    return eventually(end, timeout=90)


def test_two_kinds_of_device_are_compared_and_the_wrong_one_is_found(server: ServerProcess, tmp_path: Path) -> None:
    with_board(server)
    (tmp_path / "run.py").write_text(PROGRAM)
    words = ["compare", "--devices", "cpu,board", "-r", "2", "-c", "0.2", "--name", "boards", "--minimize", "runTime"]
    words += ["--check-value", "accuracy:0.1", "--check-file", "same.txt", "--report-file", "more.json"]
    done = isthmus(server, tmp_path, *words, "--", "python3", "run.py")
    assert done.returncode == 1, done.stderr
    assert "4 of 4 runs" in done.stderr
    head, cpu, board = done.stdout.splitlines()
    assert {"DEVICE", "TIME", "accuracy", "images", "CORRECT"} <= set(head.split())
    assert "yes" in cpu.split()
    assert "accuracy: 0.5 instead of 0.9" in board
    status = finished(server, "boards")
    assert [c["correct"] for c in status["cells"]] == [True, False]
    assert status["best"] == 0
    assert status["cells"][1]["deviations"] == [status["cells"][1]["deviations"][0]], "the files agree"
    assert status["cells"][1]["cost"]["count"] == 2
    assert status["cells"][0]["energySource"]
    report = tmp_path / "report.html"
    assert isthmus(server, tmp_path, "experiment", "boards", str(report)).returncode == 0
    text = report.read_text()
    assert "<svg" in text
    assert "http" not in text.replace("http-equiv", ""), "it asks nobody for anything"
    table = isthmus(server, tmp_path, "experiment", "boards", "-o", "csv").stdout.splitlines()
    assert table[1].startswith("0,cpu,Succeeded,2,0,true,")
    assert json.loads(isthmus(server, tmp_path, "experiment", "boards", "-o", "json").stdout)["kind"] == "Experiment"
    assert "boards" in isthmus(server, tmp_path, "experiments").stdout


def test_what_a_job_uses_is_seen_while_it_runs(server: ServerProcess, tmp_path: Path) -> None:
    script = "echo 'isthmus: {\"loss\": 0.5}'; while [ ! -e stop ]; do :; done"
    server.submit("busy", script=script, resources={"cpus": "0.5"})
    with Client(server.url, server.token, "default") as client:

        def seen() -> dict[str, Any] | None:
            names = {one["name"]: one["points"] for one in client.metrics("busy")["series"]}
            return names if len(names.get("cpu", ())) > 1 and "reported.loss" in names else None

        found = eventually(seen, timeout=60)
        assert found["reported.loss"][0][1] == 0.5
        assert all(value > 0 for _, value in found["memory"])
        assert max(value for _, value in found["cpu"]) > 0
        top = isthmus(server, tmp_path, "top", "busy", "--once")
        assert "cores" in top.stdout
        assert "loss" in top.stdout
        client.cancel("busy")
        client.wait("busy", timeout=60)
        last = client.metrics("busy")
        assert last["over"] is True
        assert "Measured:" in isthmus(server, tmp_path, "job", "busy").stdout


def test_series_survive_a_kill_and_a_lost_database(own_server: ServerProcess) -> None:
    own_server.start()
    own_server.submit("busy", "sleep", "600")
    path = f"{own_server.jobs()}/busy/metrics"

    def memory() -> list[Any]:
        found = own_server.request(path)["series"]
        return next((one["points"] for one in found if one["name"] == "memory"), [])

    before = eventually(lambda: (points := memory()) and len(points) > 1 and points)
    own_server.kill()
    time.sleep(1.2)  # samples are taken meanwhile
    own_server.start()
    after = memory()
    assert after[: len(before)] == before
    assert len(after) > len(before)
    own_server.kill()
    for file in own_server.data.glob("series.db*"):
        file.unlink()
    own_server.start()
    assert memory()[: len(after)] == after, "the site still has all of it"
    own_server.patch("busy", intent="Cancel")
    own_server.finished("busy")


@pytest.mark.parametrize("point", ["experiment:before", "experiment:after", "experiment:seen"])
def test_killed_at_each_step_every_run_is_made_once(own_server: ServerProcess, point: str) -> None:
    own_server.start(ISTHMUS_CRASH_AT=point)
    spec = {"template": {"script": "echo ran", "resources": {"cpus": "0.2"}}, "repetitions": 3, "parallel": 2}
    own_server.request(EXPERIMENTS, {"kind": "Experiment", "metadata": {"name": "e"}, "spec": spec})
    assert own_server.process is not None
    assert own_server.process.wait(60) == -9, "the crash point was not reached"
    own_server.start()
    status = finished(own_server, "e")
    assert (status["phase"], status["runs"]["succeeded"], status["runs"]["created"]) == ("Succeeded", 3, 3)
    assert [own_server.output(f"e-0-{n}") for n in range(3)] == ["ran\n"] * 3
    assert len(own_server.request(own_server.jobs())["items"]) == 3


def test_another_tenant_sees_no_experiment(server: ServerProcess, tmp_path: Path) -> None:
    spec = {"template": {"command": ["true"]}, "intent": "Hold"}
    server.request(EXPERIMENTS, {"kind": "Experiment", "metadata": {"name": "secret"}, "spec": spec})
    server.request(f"{API}/tenants", {"kind": "Tenant", "metadata": {"name": "others"}})
    words = ["token", "create", "eve", "--role", "member", "-n", "others"]
    made = isthmus(server, tmp_path, *words)
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip().splitlines()[-1]
    with Client(server.url, token, "others") as eve:
        assert eve.list("experiments") == []
        for path in ("secret", "none"):
            with pytest.raises(Forbidden, match="forbidden"):
                eve.get("experiments", path, namespace="default")
