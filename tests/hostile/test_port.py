"""Nobody takes the port of a server that is down while jobs of it run; without jobs the port is free."""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data")
    server.start()
    yield server
    if server.process is None or server.process.poll() is not None:
        server.start()
    end(server)
    server.stop()


def end(server: ServerProcess) -> None:
    """Delete the job, and wait until nothing of it is left."""
    with contextlib.suppress(urllib.error.HTTPError):
        server.request(f"{server.jobs()}/long", method="DELETE")
    eventually(lambda: not server.request(server.jobs())["items"])


def taken(port: int) -> list[str]:
    """In which ways a program on the machine's network could listen there."""
    ways = []
    options = (socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    for host, chosen in itertools.product(("127.0.0.1", "0.0.0.0"), ((), options[:1], options[1:], options)):
        with socket.socket() as thief:
            for option in chosen:
                thief.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                thief.bind((host, port))
                thief.listen()
            except OSError:
                continue
            ways.append(f"{host} with {chosen}")
    return ways


def says(server: ServerProcess) -> str:
    words = [sys.executable, "-m", "isthmus.cli", "jobs"]
    env = {"ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token, "HOME": str(server.data), "PATH": "/usr/bin:/bin"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60).stderr


def test_the_port_is_held_while_jobs_run(own: ServerProcess) -> None:
    own.submit("long", "sleep", "600")
    eventually(lambda: own.status("long")["phase"] == "Running")
    eventually((own.data / "port.sock").exists)
    for stop in (own.kill, own.stop):
        stop()
        assert taken(own.port) == []
        assert "is the server running" in says(own), "who asks is not left waiting"
        assert taken(own.port) == []
        own.start()
        assert own.status("long")["phase"] == "Running"
    # Without jobs, and without a server, there is nobody to keep it from.
    end(own)
    own.kill()
    eventually(lambda: taken(own.port))
    own.start()
    own.stop()
    eventually(lambda: taken(own.port))
    assert not (own.data / "port.sock").exists()


def test_a_server_that_listens_elsewhere_frees_the_port(own: ServerProcess) -> None:
    own.submit("long", "sleep", "600")
    eventually(lambda: own.status("long")["phase"] == "Running")
    eventually((own.data / "port.sock").exists)
    own.kill()
    before, own.port = own.port, ServerProcess(own.data).port
    own.start()
    eventually(lambda: taken(before))
    own.kill()
    assert taken(own.port) == []
