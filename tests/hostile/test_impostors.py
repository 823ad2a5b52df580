"""Whoever listens on the port of a server that is down is sent no token by the commands of its own user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isthmus.client.kubeconfigs import Access, write_access
from isthmus.server import certificates

pytestmark = pytest.mark.real
TOKEN = "ist_victim_secret"


class Impostor:
    """Answers everything with what a client likes to hear, and remembers what it was sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.heard += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize(
    "words",
    [("whoami",), ("login", "--url", "{url}", "--token", TOKEN), ("jobs",), ("up",)],
    ids=["whoami", "login", "jobs", "up"],
)
def test_an_impostor_is_sent_no_token(words: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "tls").mkdir()
    authority = certificates.own(data / "tls", "127.0.0.1").authority
    impostor = Impostor()
    url = f"http://127.0.0.1:{impostor.port}"
    try:
        write_access(data / "kubeconfig", Access(url.replace("http", "https"), TOKEN, "default", authority), "isthmus")
        env = {
            **os.environ,
            "ISTHMUS_DATA": str(data),
            "ISTHMUS_URL": url,
            "ISTHMUS_TOKEN": TOKEN,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        command = [word.format(url=url) for word in words]
        if words == ("up",):
            command += ["--listen", f"127.0.0.1:{impostor.port}"]
        done = subprocess.run(
            [sys.executable, "-m", "isthmus.cli", *command], env=env, capture_output=True, text=True, check=False
        )
    finally:
        impostor.close()
    assert done.returncode != 0, done.stdout
    assert TOKEN.encode() not in impostor.heard
    assert "TLS" in done.stderr or "cannot listen" in done.stderr
