"""The line of an invitation installs an agent from the control plane; agents follow its versions, and go back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import isthmus
from isthmus.agent.services import unit_text
from isthmus.agent.versions import AgentVersions
from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real
ACCOUNT = 261_015


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of a machine with nothing but Python, whose owner is not root."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-test-"))
    folder.chmod(0o711)
    home = folder / "home"
    home.mkdir()
    if os.geteuid() == 0:
        os.chown(home, ACCOUNT, ACCOUNT)
    yield folder
    if (home / "agent").exists():
        there(folder, "sh", str(home / "agent" / "agent.sh"), "leave", "--force")
    shutil.rmtree(folder)


def there(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """On the other machine, as its owner."""
    became = [f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"] if os.geteuid() == 0 else []
    words = ("setpriv", *became, *words) if became else words
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder / "home")}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False, cwd="/")


def changed(folder: Path, name: str, version: str, **files: str) -> str:
    """Isthmus of another version, with lines added to some of its modules; where it lies."""
    (package,) = isthmus.__path__
    target = folder / name / "isthmus"
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in {"__init__.py": f'__version__ = "{version}"\n', **files}.items():
        with (target / path).open("a") as file:
            file.write(text)
    return str(folder / name)


def agent(server: ServerProcess) -> dict[str, object]:
    (found,) = server.request("/agents")["items"]
    return dict(found)


def test_a_machine_is_installed_upgraded_and_goes_back(folder: Path, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "control")
    server.start()
    try:
        _story(server, folder, tmp_path)
    finally:
        server.stop()


def _story(server: ServerProcess, folder: Path, tmp_path: Path) -> None:
    env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    env["ISTHMUS_CA_FILE"] = str(server.data / "tls" / "ca.pem")
    words = [sys.executable, "-m", "isthmus.cli", "agents", "invite", "--name", "desk", "-o", "json"]
    said = json.loads(subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert "\n" not in said["command"]
    data = folder / "home" / "agent"

    other = there(folder, "sh", "-c", said["command"].replace('hexdigest()=="', 'hexdigest()=="0') + f" --data {data}")
    assert "not the control plane of this invitation" in other.stderr
    stranger = there(folder, "sh", "-c", said["command"].replace("isi_desk_", "isi_desk_x") + f" --data {data}")
    assert "unknown, used or expired" in stranger.stderr
    assert not (data / "current").exists()

    done = there(folder, "sh", "-c", f"{said['command']} --data {data}")
    assert done.returncode == 0, done.stderr
    eventually(lambda: agent(server)["state"] == "Connected")
    first = AgentVersions(data).current
    assert agent(server)["build"] == first
    assert first.startswith(isthmus.__version__)
    server.submit("long", script="#!/bin/sh\necho begun; until [ -e go ]; do sleep 0.1; done; exit 6\n",
                  placement={"sites": ["desk"]})  # fmt: skip
    eventually(lambda: server.status("long")["phase"] == "Running")

    # A newer control plane: the agent follows it, and what runs goes on.
    server.stop()
    server.start(PYTHONPATH=changed(tmp_path, "newer", "7.0.0"))
    eventually(lambda: agent(server)["version"] == "7.0.0", timeout=90)
    eventually(lambda: not AgentVersions(data).on_trial)
    second = AgentVersions(data).current
    assert second == agent(server)["build"]
    assert server.status("long")["phase"] == "Running"

    # One whose agent does not come up: it goes back, says so, and does not try again.
    broken = {
        "agent/connecting.py": "\n\nasync def _never(self):\n    raise SystemExit(3)\n\n\nConnector.run = _never\n"
    }
    server.stop()
    server.start(PYTHONPATH=changed(tmp_path, "broken", "8.0.0", **broken))
    eventually(lambda: agent(server).get("rejectedBuilds"), timeout=90)
    assert str(agent(server)["rejectedBuilds"][0]).startswith("8.0.0-")  # type: ignore[index]
    assert (agent(server)["version"], agent(server)["state"]) == ("7.0.0", "Connected")
    assert AgentVersions(data).current == second

    (work,) = (data / "site" / "runs").glob("*/work")
    (work / "go").touch()
    assert server.finished("long")["exitCode"] == 6
    assert server.output("long") == "begun\n"

    left = there(folder, "sh", str(data / "agent.sh"), "leave")
    assert left.returncode == 0, left.stderr
    assert not data.exists()
    eventually(lambda: agent(server)["state"] == "Offline")


def test_a_unit_of_systemd_starts_it_with_the_machine() -> None:
    text = unit_text(Path("/var/lib/isthmus agent/50%/agent.sh"), root=True)
    assert "ExecStart=/bin/sh '/var/lib/isthmus agent/50%%/agent.sh'" in text
    assert "KillMode=process" in text
    assert "WantedBy=multi-user.target" in text
    assert "WantedBy=default.target" in unit_text(Path("/x"), root=False)
