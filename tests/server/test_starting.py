"""Starting, stopping and being found: one folder, one instance, nothing for others to read."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, eventually, free_port

pytestmark = pytest.mark.real


def isthmus(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "isthmus.cli", *words], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_up_says_how_to_go_on_and_is_idempotent_and_down_stops_it(tmp_path: Path) -> None:
    data, listen = str(tmp_path / "data"), f"127.0.0.1:{free_port()}"
    first = isthmus("up", "--detach", "--data", data, "--listen", listen)
    assert first.returncode == 0, first.stderr
    for words in (f"http://{listen}", "isthmus login", "isthmus run"):
        assert words in first.stdout
    again = isthmus("up", "--detach", "--data", data, "--listen", listen)
    assert again.returncode == 0
    assert "already running" in again.stdout
    done = isthmus(
        "run",
        "--no-files",
        "--",
        "echo",
        "hi",
        ISTHMUS_URL=f"http://{listen}",
        ISTHMUS_TOKEN_FILE=f"{data}/admin.token",
    )
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert isthmus("down", "--data", data).returncode == 0
    assert "no instance" in isthmus("down", "--data", data).stdout


def test_a_second_instance_on_the_same_folder_or_port_is_refused_and_told_why(own_server: ServerProcess) -> None:
    own_server.start()
    same_folder = isthmus("serve", "--data", str(own_server.data), "--listen", f"127.0.0.1:{free_port()}")
    assert same_folder.returncode != 0
    assert "in use by another instance" in same_folder.stderr
    other = str(own_server.data.with_name("other"))
    same_port = isthmus("serve", "--data", other, "--listen", f"127.0.0.1:{own_server.port}")
    assert same_port.returncode != 0
    assert "choose another with --listen" in same_port.stderr
    assert "Traceback" not in same_folder.stderr + same_port.stderr


def test_secrets_are_readable_by_their_owner_only(own_server: ServerProcess) -> None:
    old = os.umask(0)
    try:
        own_server.start()
    finally:
        os.umask(old)
    own_server.submit("one")
    own_server.finished("one")
    secret = [
        own_server.data / name for name in ("admin.token", "kubeconfig", "isthmus.db", "tls/ca.key", "tls/server.key")
    ]
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE((own_server.data / "files").stat().st_mode) & 0o077 == 0


def test_the_token_survives_restarts_and_a_lost_file_is_replaced(own_server: ServerProcess) -> None:
    own_server.start()
    token = own_server.token
    own_server.stop()
    own_server.start()
    assert own_server.token == token
    own_server.stop()
    (own_server.data / "admin.token").unlink()
    own_server.start()
    assert own_server.token != token
    assert own_server.request("/apis/isthmus.dev/v1/sites")["items"]


def test_kubectl_with_the_kubeconfig_that_the_instance_wrote(own_server: ServerProcess) -> None:
    own_server.start()
    own_server.submit("seen")
    own_server.finished("seen")
    kubectl = ["kubectl", "--kubeconfig", str(own_server.data / "kubeconfig")]
    shown = subprocess.run([*kubectl, "get", "jobs"], capture_output=True, text=True)
    assert "seen" in shown.stdout, shown.stderr
    waited = subprocess.run([*kubectl, "wait", "--for=condition=Complete", "ijob/seen"], capture_output=True, text=True)
    assert waited.returncode == 0, waited.stderr


def test_login_on_this_machine_ends_in_tls(own_server: ServerProcess, tmp_path: Path) -> None:
    own_server.start()
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    done = isthmus("login", "--url", own_server.url, "--token-file", str(own_server.data / "admin.token"), **home)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / ".config/isthmus/kubeconfig").read_text())
    assert kept["clusters"][0]["cluster"]["server"].startswith("https://")
    assert isthmus("whoami", **home).returncode == 0


def test_plain_http_is_refused_where_others_could_listen(tmp_path: Path) -> None:
    import socket
    import urllib.error
    import urllib.request

    port = free_port()
    server = ServerProcess(tmp_path / "data")
    words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(server.data), "--listen", f"0.0.0.0:{port}"]
    server.port = port
    server.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: (server.data / "instance.json").exists(), timeout=60)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz")
        assert b"https" in caught.value.read()
        caught.value.close()
        assert (
            json.loads((server.data / "instance.json").read_text())["url"] == f"https://{socket.gethostname()}:{port}"
        )
    finally:
        server.stop()


def test_a_stop_is_quick_and_clean_with_streams_open(own_server: ServerProcess) -> None:
    own_server.start()
    own_server.submit("long", "sleep", "30")
    follower = subprocess.Popen(
        [
            "curl",
            "-sN",
            "-H",
            f"Authorization: Bearer {own_server.token}",
            f"{own_server.url}{own_server.jobs()}/long/log?follow=true",
        ]
    )
    eventually(lambda: own_server.status("long")["phase"] == "Running")
    assert own_server.stop() == 0
    follower.wait(10)
    assert "Traceback" not in own_server.log.read_text()
    own_server.start()
    own_server.patch("long", intent="Cancel")
    own_server.finished("long")
