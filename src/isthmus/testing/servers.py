"""A whole control plane as a process of its own, to be used, killed and started again by tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs `isthmus` with words."""
GROUP = "/apis/isthmus.dev/v1"
COUNTING = """#!/bin/sh
mkdir -p state
n=$(cat state/n 2>/dev/null || echo 0)
trap 'exit 143' TERM
echo from $n
pause=5
if [ $ISTHMUS_ATTEMPT -gt 0 ]; then pause=0.01; fi
while [ $n -lt 40 ]; do n=$((n+1)); echo $n > state/n; sleep $pause & wait $!; done
echo counted to $n
"""
"""Counts to forty and remembers how far it came; slowly at first, so that it is there to be stopped."""


class LoggedProcess:
    """A command of ours that goes on, with a log beside its folder, to be stopped and killed by tests."""

    def __init__(self, data: Path) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.log = data.with_name(f"{data.name}.log")

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """An orderly stop; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class ServerProcess(LoggedProcess):
    """`isthmus serve` on a folder."""

    def __init__(self, data: Path, *, store: str | None = None, environment: dict[str, str] | None = None) -> None:
        super().__init__(data)
        self.data = data
        self.port = free_port()
        self._store, self._environment = store, environment or {}

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """The administrator's token."""
        return (self.data / "admin.token").read_text().strip()

    def start(self, *, wait: bool = True, **environment: str) -> None:
        """Start it, and wait until it answers."""
        words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(self.data)]
        words += ["--listen", f"127.0.0.1:{self.port}"]
        if self._store:
            words += ["--store", self._store]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self._environment, **environment},
            )  # fmt: skip
        if wait:
            eventually(self.ready, timeout=60)

    def ready(self) -> bool:
        """Whether it answers; raises when it has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()  # noqa: S310 - our own address
            return True
        return False

    def request(self, path: str, body: Any = None, *, method: str | None = None, token: str | None = None) -> Any:
        """One request; the decoded answer. Raises urllib.error.HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method or ("POST" if data else "GET"))  # noqa: S310
        request.add_header("Authorization", f"Bearer {token or self.token}")
        patch = "application/merge-patch+json"
        request.add_header("Content-Type", patch if method == "PATCH" else "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    # Jobs, in the default tenant unless asked otherwise

    def command_line(self, folder: Path) -> CommandLine:
        """`isthmus` of its administrator, in a folder; nothing on its standard input."""

        def call(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "isthmus.cli", *words],
                env={**os.environ, "ISTHMUS_URL": self.url, "ISTHMUS_TOKEN": self.token},
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                stdin=subprocess.DEVNULL,
            )

        return call

    def jobs(self, namespace: str = "default") -> str:
        """The path of a tenant's jobs."""
        return f"{GROUP}/namespaces/{namespace}/jobs"

    def submit(self, name: str, *command: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
        """Create a job."""
        what = {} if "script" in spec else {"command": list(command) or ["true"]}
        body = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**what, **spec}}
        made: dict[str, Any] = self.request(self.jobs(namespace), body)
        return made

    def job(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """A job as it is now."""
        found: dict[str, Any] = self.request(f"{self.jobs(namespace)}/{name}")
        return found

    def status(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """A job's status."""
        status: dict[str, Any] = self.job(name, namespace)["status"]
        return status

    def patch(self, name: str, namespace: str = "default", **spec: Any) -> None:
        """Change fields of a job's spec."""
        self.request(f"{self.jobs(namespace)}/{name}", {"spec": spec}, method="PATCH")

    def finished(self, name: str, namespace: str = "default", *, timeout: float = 60) -> dict[str, Any]:
        """A job's status once it has ended."""
        ends = ("Succeeded", "Failed", "Cancelled")

        def end() -> dict[str, Any] | None:
            status = self.status(name, namespace)
            return status if status["phase"] in ends else None

        return eventually(end, timeout=timeout)

    def output(self, name: str, namespace: str = "default", query: str = "") -> str:
        """A job's log."""
        text: bytes = self.request(f"{self.jobs(namespace)}/{name}/log{query}")
        return text.decode()


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(found: Callable[[], T | None], *, timeout: float = 60) -> T:
    """What `found` returns once it is something; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = found()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {timeout} s: {found}")
        time.sleep(0.02)


@contextlib.contextmanager
def running_server(data: Path, *, store: str | None = None) -> Iterator[ServerProcess]:
    """A server that is up for the length of a block."""
    server = ServerProcess(data, store=store)
    server.start()
    try:
        yield server
    finally:
        server.stop()
