"""Kubeconfigs and service accounts: who we are to a cluster."""

from __future__ import annotations

import json
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from isthmus.errors import Misconfigured
from isthmus.kubernetes import kubeconfigs

pytestmark = pytest.mark.anyio


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://server/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(whole))
    return path


async def presented(auth: httpx.Auth | None, refuse: tuple[str, ...] = ()) -> list[str]:
    """The credentials that a request was made with, the refused ones among them."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization", ""))
        return httpx.Response(401 if seen[-1] in refuse else 200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), auth=auth) as client:
        await client.get("http://server/x")
    return seen


async def test_tokens(tmp_path: Path) -> None:
    access = kubeconfigs.at(f"kubernetes:{kubeconfig(tmp_path, {'token': 'abc'})}#here")
    assert (access.url, access.namespace) == ("https://server", "n")
    assert await presented(access.auth) == ["Bearer abc"]
    assert await presented(access.auth, refuse=("Bearer abc",)) == ["Bearer abc"], "there is no other to try"


async def test_a_token_file_that_is_exchanged(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    auth = kubeconfigs.load(kubeconfig(tmp_path, {"tokenFile": "token"})).auth
    assert await presented(auth) == ["Bearer old"]
    (tmp_path / "token").write_text("new\n")
    assert await presented(auth, refuse=("Bearer old",)) == ["Bearer old", "Bearer new"]
    assert await presented(auth) == ["Bearer new"]


async def test_a_program_that_gives_tokens(tmp_path: Path) -> None:
    count, said = tmp_path / "count", {"kind": "ExecCredential", "status": {"token": "@"}}
    program = tmp_path / "login"
    program.write_text(
        f"#!{sys.executable}\nimport pathlib\np = pathlib.Path({str(count)!r})\n"
        "n = int(p.read_text()) + 1 if p.exists() else 1\np.write_text(str(n))\n"
        f"print({json.dumps(said)!r}.replace('@', f't{{n}}'))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    auth = kubeconfigs.load(kubeconfig(tmp_path, {"exec": {"command": str(program)}})).auth
    assert await presented(auth) == ["Bearer t1"]
    assert await presented(auth) == ["Bearer t1"]
    assert await presented(auth, refuse=("Bearer t1",)) == ["Bearer t1", "Bearer t2"]
    access = kubeconfigs.ClusterAccess("https://server", ssl.create_default_context(), auth)
    assert await access.headers() == {"Authorization": "Bearer t2"}, "for connections that httpx does not make"
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Misconfigured, match="gave no token"):
        await presented(auth, refuse=("Bearer t2",))


@pytest.mark.parametrize("text", ["", "a: [", "{}", "current-context: x\ncontexts: []\n", "[]"])
async def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Misconfigured):
        kubeconfigs.load(tmp_path / "config")


async def test_what_is_missing(tmp_path: Path) -> None:
    for location in (f"kubernetes:{tmp_path}/none", "kubernetes:", f"kubernetes:{kubeconfig(tmp_path, {})}#other"):
        with pytest.raises(Misconfigured):
            kubeconfigs.at(location)
    for server in ({"server": "http://server"}, {"server": "https://server", "insecure-skip-tls-verify": True}):
        with pytest.raises(Misconfigured, match=r"https://|certificate-authority-data"):
            kubeconfigs.load(kubeconfig(tmp_path, {}, **server))
    with pytest.raises(Misconfigured, match="auth-provider"):
        kubeconfigs.load(kubeconfig(tmp_path, {"auth-provider": {"name": "gcp"}}))
    broken = kubeconfig(tmp_path, {}, server="https://server", **{"certificate-authority-data": "%%%"})
    with pytest.raises(Misconfigured):
        kubeconfigs.load(broken)
    with pytest.raises(Misconfigured, match="name a kubeconfig"):
        kubeconfigs.own("https://10.0.0.1:443", tmp_path)


async def test_a_name_and_a_password(tmp_path: Path) -> None:
    access = kubeconfigs.load(kubeconfig(tmp_path, {"username": "ada", "password": "x:y"}))
    assert await presented(access.auth) == ["Basic YWRhOng6eQ=="]
    assert await access.headers() == {"Authorization": "Basic YWRhOng6eQ=="}
