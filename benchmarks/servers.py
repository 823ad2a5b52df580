"""Servers to measure: Isthmus itself, and a bare Starlette endpoint that returns the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = open(sys.argv[1], "rb").read()
async def endpoint(request):
    return Response(body, media_type="application/json")
app = Starlette(routes=[Route("/bare", endpoint)])
fast = {"http": "httptools", "loop": "uvloop", "log_level": "error", "access_log": False}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), **fast)
"""


@dataclass
class Server:
    url: str
    token: str
    data: Path
    process: subprocess.Popen[bytes]

    def request(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method or ("POST" if data else "GET"))
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def memory(self) -> float:
        """Resident megabytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) / 1024


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server at {url} ended with {process.returncode}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url).close()
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server at {url} did not start")


@contextlib.contextmanager
def isthmus(source: Path | None = None) -> Iterator[Server]:
    """A server on an empty folder, of this code or of other sources."""
    environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        data, port = Path(folder) / "data", free_port()
        Path(folder).chmod(0o711)
        words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(data), "--listen", f"127.0.0.1:{port}"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*words, "--log-level", "WARNING"], stdout=log, stderr=log, env=environment)
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz", process)
            token = (data / "admin.token").read_text().strip()
            server = Server(f"http://127.0.0.1:{port}", token, data, process)
            while server.request("/apis/isthmus.dev/v1/sites/local")["status"]["phase"] != "Ready":
                time.sleep(0.05)
            yield server
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def bare(body: bytes) -> Iterator[str]:
    """The baseline; its URL."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        port = free_port()
        process = subprocess.Popen([sys.executable, "-c", BARE, file.name, str(port)], env={**os.environ})
        try:
            wait_for(f"http://127.0.0.1:{port}/bare", process)
            yield f"http://127.0.0.1:{port}/bare"
        finally:
            process.terminate()
            process.wait(30)
