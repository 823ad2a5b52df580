"""Every example does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.cli.manifests import parse_manifests
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import kind_named
from isthmus.testing.servers import ServerProcess, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


def isthmus(server: ServerProcess, *words: str) -> str:
    environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.cli", *words], capture_output=True, text=True, env=environment, cwd=server.data
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_are_valid_and_say_what_they_are_for(path: Path) -> None:
    assert path.read_text().startswith("#")
    for document in parse_manifests(path.read_bytes(), path.name):
        validate(kind_named(document["kind"]), document)


@pytest.mark.real
def test_all_of_them_on_one_server(server: ServerProcess) -> None:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        assert "created" in isthmus(server, "apply", "-f", str(path))
    assert server.finished("hello")["phase"] == "Succeeded"
    assert server.output("hello") == "hello from Isthmus\n"
    pi = server.finished("estimate-pi")
    assert (pi["phase"], pi["outputs"]["count"]) == ("Succeeded", 1)
    assert server.finished("sweep")["array"]["succeeded"] == 10
    assert server.output("after-sweep", query="?follow=true") == "all ten are done\n"
    assert server.finished("report")["phase"] == "Succeeded"
    assert server.output("report") == "55\n"
    assert server.finished("only-in-italy")["site"] == "corner"
    tenants = eventually(lambda: server.request("/apis/isthmus.dev/v1/tenants/vision-lab")["status"].get("uidNumber"))
    assert tenants >= 200_000


@pytest.mark.real
def test_the_python_client(server: ServerProcess) -> None:
    environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "python_client.py")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "working" in done.stdout
    assert "phase: Succeeded" in done.stdout
    assert "answer: 42" in done.stdout
