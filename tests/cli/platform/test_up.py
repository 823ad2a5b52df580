"""`isthmus up`: what it says, and what it does when an instance is there already."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.platform import checks, up
from isthmus.client.kubeconfigs import Access, write_access
from isthmus.server.main import RunningServer


@pytest.mark.parametrize(
    ("url", "host", "port", "expected"),
    [
        ("http://127.0.0.1:7070", "127.0.0.1", 7070, False),
        ("http://127.0.0.1:7070", "127.0.0.1", 0, False),
        ("http://127.0.0.1:7070", "127.0.0.1", 7071, True),
        ("http://127.0.0.1:7070", "0.0.0.0", 7070, True),
        ("https://machine:7070", "0.0.0.0", 7070, False),
        ("https://machine:7070", "127.0.0.1", 7070, True),
        ("http://[::1]:7070", "::1", 7070, False),
    ],
)
def test_another_address_is_noticed(url: str, host: str, port: int, expected: bool) -> None:
    assert up.elsewhere(url, host, port) is expected


def test_the_greeting_signs_in_where_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ISTHMUS_URL", "ISTHMUS_TOKEN", "KUBECONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("isthmus.config.server.default_data_folder", lambda _: tmp_path / "usual")
    data = tmp_path / "data"
    (data / "tls").mkdir(parents=True)
    (data / "tls" / "ca.pem").write_text("PEM")
    secure = RunningServer("https://machine:7070", 1, data)
    up.greet(secure, stop="Ctrl-C")
    reported = capsys.readouterr().out
    assert "1. sign in  isthmus login --url https://machine:7070" in reported
    assert f"--ca-file {data}/tls/ca.pem" in reported
    assert "2. try " in reported
    up.greet(RunningServer("http://127.0.0.1:7070", 1, data), stop="Ctrl-C")
    assert "--ca-file" not in capsys.readouterr().out
    write_access(tmp_path / "usual" / "kubeconfig", Access("https://machine:7070", "ist_a_b", "default"), "isthmus")
    up.greet(secure, stop="Ctrl-C")
    assert "  try  " in capsys.readouterr().out, "it is found without signing in"


def test_the_greeting_warns_where_jobs_are_not_isolated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = RunningServer("http://127.0.0.1:7070", 1, tmp_path)
    monkeypatch.setattr(
        checks, "sandbox_check", lambda: checks.Finding("sandbox", "warn", "no bubblewrap", "install it")
    )
    up.greet(instance, stop="Ctrl-C")
    assert "not isolated: no bubblewrap. install it" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(checks, "sandbox_check", lambda: checks.Finding("sandbox", "ok", "it is there"))
    monkeypatch.setattr(checks, "network_check", lambda: checks.Finding("network", "warn", "no slirp4netns", "install"))
    up.greet(instance, stop="Ctrl-C")
    assert "share its network: no slirp4netns. install" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(checks, "network_check", lambda: checks.Finding("network", "ok", "it is there"))
    up.greet(instance, stop="Ctrl-C")
    assert capsys.readouterr().err == ""


def test_doctor_says_what_jobs_really_get() -> None:
    def site(name: str, **features: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": {"features": features}}

    found = checks.isolation_checks(
        [site("one", isolation="bubblewrap"), site("two", isolation="none: bubblewrap is not installed"), site("three")]
    )
    assert [(check.result, check.message.split()[3]) for check in found] == [("ok", "one"), ("warn", "two")]
    shared = checks.isolation_checks([site("one", network="the machine's own, loopback included: no slirp4netns")])
    own = checks.isolation_checks([site("one", network="each job's own (slirp4netns)")])
    assert [check.result for check in (*shared, *own)] == ["warn", "ok"]


@pytest.mark.real
def test_detached(offline: Any, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    words = ("up", "--detach", "--data", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = offline(*words, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert done.stderr.startswith("isthmus: Isthmus did not start: cannot listen on 127.0.0.1:")
    try:
        done = offline(*words, "--listen", "127.0.0.1:0", "--log-level", "ERROR")
        assert done.returncode == 0, done.stderr
        assert "1. sign in" in done.stdout
        again = offline(*words, "--listen", "127.0.0.1:1")
        assert again.returncode == 0
        assert "it keeps listening at http://127.0.0.1:" in again.stderr
        assert "isthmus down --data" in again.stderr
        assert offline(*words).stderr == "", "nothing was asked of its address"
        url = next(line.split()[1] for line in done.stdout.splitlines() if "API" in line)
        signed = offline("login", "--url", url, "--token-file", str(tmp_path / "data" / "admin.token"))
        assert signed.returncode == 0, signed.stderr
        assert offline("run", "--no-files", "--", "echo", "hello").stdout == "hello\n"
        assert "INFO" not in (tmp_path / "data" / "server.log").read_text()
    finally:
        assert list((tmp_path / "data" / "sites").glob("*/keeper-*.sock"))
        assert offline("down", "--data", str(tmp_path / "data")).returncode == 0
    assert not list((tmp_path / "data" / "sites").glob("*/keeper-*.sock")), "the keepers have left"


@pytest.mark.real
def test_a_certificate_nobody_vouches_for_names_the_remedy(offline: Any, server: Any) -> None:
    secure = server.url.replace("http://", "https://")
    done: subprocess.CompletedProcess[str] = offline("login", "--url", secure, "--token", server.token)
    assert done.returncode == 5
    assert "isthmus login --ca-file FILE" in done.stderr
    from isthmus import AsyncClient, Unreachable

    async def ask() -> None:
        async with AsyncClient(secure, server.token) as client:
            await client.whoami()

    with pytest.raises(Unreachable, match="--ca-file"):
        asyncio.run(ask())
    trusted = offline(
        "login", "--url", secure, "--token", server.token, "--ca-file", str(server.data / "tls" / "ca.pem")
    )
    assert trusted.returncode == 0, trusted.stderr
