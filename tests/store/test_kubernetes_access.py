"""Kubeconfigs and service accounts: who we are to a cluster, and what an answer of it means."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from isthmus.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    StoreUnavailable,
)
from isthmus.resources.kinds import JOB
from isthmus.store.kubernetes.access import access_at, as_pod, from_kubeconfig
from isthmus.store.kubernetes.answers import error_of
from isthmus.store.kubernetes.client import Api
from isthmus.store.kubernetes.reflecting import Reflector
from isthmus.store.settings import StoreSettings
from isthmus.store.watching import Hub

pytestmark = pytest.mark.anyio


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://server/", **cluster}}],
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
    access = access_at(f"kubernetes:{kubeconfig(tmp_path, {'token': 'abc'})}#here")
    assert (access.server, access.namespace) == ("http://server", "n")
    assert await presented(access.auth) == ["Bearer abc"]
    assert await presented(access.auth, refuse=("Bearer abc",)) == ["Bearer abc"], "there is no other to try"


async def test_a_token_file_that_is_exchanged(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    auth = from_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"})).auth
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
    auth = from_kubeconfig(kubeconfig(tmp_path, {"exec": {"command": str(program)}})).auth
    assert await presented(auth) == ["Bearer t1"]
    assert await presented(auth) == ["Bearer t1"]
    assert await presented(auth, refuse=("Bearer t1",)) == ["Bearer t1", "Bearer t2"]
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Misconfigured, match="gave no token"):
        await presented(auth, refuse=("Bearer t2",))


@pytest.mark.parametrize("text", ["", "a: [", "{}", "current-context: x\ncontexts: []\n", "[]"])
async def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Misconfigured):
        from_kubeconfig(tmp_path / "config")


async def test_what_is_missing(tmp_path: Path) -> None:
    for location in (f"kubernetes:{tmp_path}/none", "kubernetes:", f"kubernetes:{kubeconfig(tmp_path, {})}#other"):
        with pytest.raises(Misconfigured):
            access_at(location)
    broken = kubeconfig(tmp_path, {}, server="https://server", **{"certificate-authority-data": "%%%"})
    with pytest.raises(Misconfigured):
        from_kubeconfig(broken)
    with pytest.raises(Misconfigured, match="name a kubeconfig"):
        as_pod("https://10.0.0.1:443", tmp_path)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        (404, {"details": {"name": "x"}}, NotFound),
        (404, {}, StoreUnavailable),
        (409, {"reason": "AlreadyExists"}, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict),
        (410, {"reason": "Expired"}, Expired),
        (422, {"details": {"causes": [{"field": "spec.x", "message": "bad"}]}}, Invalid),
        (403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}, Forbidden),
        (403, {}, StoreUnavailable),
        (500, {}, StoreUnavailable),
    ],
)
async def test_answers(code: int, status: dict[str, Any], error: type[Exception]) -> None:
    found = error_of(code, json.dumps({"kind": "Status", "message": "no", **status}).encode(), "Job x")
    assert type(found) is error
    assert type(error_of(code, b"not json", "Job x")).__name__ != "InternalError"


async def test_a_cluster_that_was_set_back_is_listed_anew(tmp_path: Path) -> None:
    api = Api(from_kubeconfig(kubeconfig(tmp_path, {})), StoreSettings())
    versions = iter(("12", "5"))
    answer = {"metadata": {}}
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, json={**answer, "metadata": {"resourceVersion": next(versions)}})
    )
    api._http = httpx.AsyncClient(base_url="http://server", transport=transport)
    hub: Any = Hub(None, StoreSettings())  # type: ignore[arg-type]
    reflector = Reflector(api, JOB, hub, StoreSettings(), None)  # type: ignore[arg-type]
    hub.version = 10
    reflector._synced.set()
    await reflector._check_history()
    assert reflector._synced.is_set()
    await reflector._check_history()
    assert not reflector._synced.is_set()
    await api.close()
