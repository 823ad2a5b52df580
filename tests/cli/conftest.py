"""A real server, and the command line as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


class Server(NamedTuple):
    """A running instance."""

    url: str
    token: str
    data: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Below a folder that others may enter: jobs may run under another account.
    data = tmp_path_factory.mktemp("instance") / "data"
    for folder in (data.parent, data.parent.parent, data.parent.parent.parent):
        folder.chmod(0o755)
    words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    with (data.parent / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield Server(_url(process, data, data.parent / "log"), (data / "admin.token").read_text().strip(), data)
    finally:
        process.terminate()
        process.wait(30)


def _url(process: subprocess.Popen[bytes], data: Path, log: Path) -> str:
    from isthmus.server.main import running_instance

    for _ in range(600):
        assert process.poll() is None, log.read_text()
        if (data / "admin.token").exists() and (found := running_instance(data)) and found.url:
            return found.url
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user with an empty home who has never logged in."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ISTHMUS_", "XDG_", "KUBECONFIG", "NO_COLOR"))}
    return {**kept, "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "ISTHMUS_DATA": str(home / "data/isthmus")}


@pytest.fixture
def offline(environment: dict[str, str], tmp_path: Path) -> Call:
    """`isthmus`, with no server to talk to."""
    return _caller(environment, tmp_path)


@pytest.fixture
def isthmus(server: Server, environment: dict[str, str], tmp_path: Path) -> Call:
    """`isthmus`, signed in as the administrator, in an empty folder."""
    environment |= {"ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    return _caller(environment, tmp_path)


def _caller(environment: dict[str, str], tmp_path: Path) -> Call:
    work = tmp_path / "work"
    work.mkdir()

    def call(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        given = {"cwd": work, "timeout": 60, "stdin": subprocess.DEVNULL, **options}
        if "input" in given:
            del given["stdin"]
        given["env"] = {**environment, **(given.get("env") or {})}  # type: ignore[dict-item]
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", "isthmus.cli", *words], capture_output=True, text=True, check=False, **given
        )

    return call


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder that commands are called in."""
    return tmp_path / "work"
