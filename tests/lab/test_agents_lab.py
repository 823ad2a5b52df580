"""A lab of agents: machines with networks of their own, whose links are cut and slowed while jobs run on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import Invalid
from isthmus.lab.agents.fleet import AgentsLab
from isthmus.lab.agents.layout import AgentsLabPlace
from isthmus.lab.agents.shapes import LinkShape, netem, parse_shape, wanted
from isthmus.testing.servers import ServerProcess, eventually, running_server


def test_words_and_numbers_say_what_a_link_is_like() -> None:
    assert wanted("down", None, None, None) is None
    assert wanted("up", None, None, None) == LinkShape()
    assert wanted("up", "300ms", "1.5M", 5) == LinkShape(latency=0.3, rate=1_500_000, loss=0.05)
    assert wanted("slow", None, "64kbit", None) == LinkShape(latency=0.1, rate=64_000)
    for words in (("sideways", None, None), ("up", "300", None), ("up", "2h", None), ("up", None, "fast")):
        with pytest.raises(Invalid):
            wanted(*words, None)


def test_a_shape_is_kept_and_told_to_the_kernel() -> None:
    shape = LinkShape(latency=0.3, rate=256_000, loss=0.05)
    assert parse_shape(shape.to_json()) == shape
    assert parse_shape("{") == parse_shape('{"more": 1}') == LinkShape()
    assert netem(shape)[3:] == ["delay", "300ms", "loss", "5%", "rate", "256000bit"]


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    with running_server(folder.parent / "control") as server:
        yield server
        AgentsLab(folder / "agents").down(erase=True)


def isthmus(server: ServerProcess, *words: str) -> str:
    env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    env["ISTHMUS_CA_FILE"] = str(server.data / "tls" / "ca.pem")
    words = (sys.executable, "-m", "isthmus.cli", *words)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def agents(server: ServerProcess) -> dict[str, Any]:
    return {one["name"]: one for one in server.request("/agents")["items"]}


@pytest.mark.real
def test_machines_join_and_their_links_are_cut_and_slowed(server: ServerProcess, folder: Path) -> None:
    lab = ("--data", str(folder))
    isthmus(server, "lab", "up", "--agents", "2", *lab)
    assert {name: one["state"] for name, one in agents(server).items()} == {
        "agent-1": "Connected",
        "agent-2": "Connected",
    }
    isthmus(server, "lab", "up", "--agents", "2", *lab)  # again: nothing joins anew
    assert [one["connections"] for one in agents(server).values()] == [1, 1]

    script = "#!/bin/sh\nhostname; echo begun; until [ -e go ]; do sleep 0.1; done; echo ended; exit 5\n"
    server.submit("far", script=script, placement={"sites": ["agent-1"]})
    eventually(lambda: server.status("far")["phase"] == "Running")
    assert isthmus(server, "lab", "link", "agent-1", "down", *lab) == "agent-1 down\n"
    eventually(lambda: agents(server)["agent-1"]["state"] == "Offline")
    assert agents(server)["agent-2"]["state"] == "Connected", "each link is its own"
    site = eventually(lambda: _site(server, "agent-1", "Unreachable"))
    assert "was last heard less than a minute ago" in site["status"]["message"]
    (work,) = (folder / "agents" / "nodes" / "agent-1" / "agent" / "site" / "runs").glob("*/work")
    (work / "go").touch()
    assert server.status("far")["phase"] == "Running", "nothing is concluded"

    isthmus(server, "lab", "link", "agent-1", "far", "--latency", "250ms", *lab)
    assert server.finished("far")["exitCode"] == 5
    assert server.output("far") == "agent-1\nbegun\nended\n"
    eventually(lambda: (agents(server)["agent-1"].get("roundTripSeconds") or 0) >= 0.5)

    status = json.loads(isthmus(server, "lab", "status", "-o", "json", *lab))["agents"]
    assert status["nodes"] == {"agent-1": "link up", "agent-2": "link up"}
    bridge = Path("/sys/class/net") / AgentsLabPlace.of(folder / "agents").bridge
    assert bridge.exists()
    isthmus(server, "lab", "down", "--erase", *lab)
    assert not bridge.exists()
    assert not (folder / "agents").exists()
    eventually(lambda: not agents(server))


def _site(server: ServerProcess, name: str, phase: str) -> dict[str, Any] | None:
    site: dict[str, Any] = server.request(f"/apis/isthmus.dev/v1/sites/{name}")
    return site if site["status"]["phase"] == phase else None
