"""Signing in with a provider from the command line, against a provider that signs and an API that checks."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.client import AsyncClient, Client
from isthmus.client.config import find_access
from isthmus.client.kubeconfigs import read_access
from isthmus.client.oidc import device_flow
from isthmus.client.oidc.provider_answers import ProviderOffer, ProviderTokens
from isthmus.client.oidc.provider_asking import ask
from isthmus.client.oidc.sign_ins import SignIn, forget, keep, read_sign_in, renewed
from isthmus.errors import Unauthenticated, Unavailable
from isthmus.testing.apis import RunningApi, running_api
from isthmus.testing.oidc_provider import CLIENT, TestProvider, running_provider

pytestmark = pytest.mark.anyio
PENDING = {"error": "authorization_pending"}


@pytest.fixture
async def provider() -> AsyncIterator[TestProvider]:
    async with running_provider() as provider:
        provider.claims["groups"] = ["physics"]
        yield provider


@pytest.fixture
async def api(tmp_path: Path, provider: TestProvider) -> AsyncIterator[RunningApi]:
    rules = [{"claim": "groups", "equals": "physics", "tenant": "physics"}]
    spec = {"issuer": provider.issuer, "clientId": CLIENT, "rules": rules, "blocked": ["mallory@example.org"]}
    async with running_api(tmp_path / "api") as api, api.client("admin") as client:
        made = {"kind": "IdentityProvider", "metadata": {"name": "campus"}, "spec": spec}
        answer = await client.post("/apis/isthmus.dev/v1/identityproviders", json=made)
        assert answer.status_code == 201, answer.text
        yield api


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who never signed in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ISTHMUS_", "XDG_", "KUBECONFIG", "DISPLAY"))}
    return {**kept, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "BROWSER": "false"}


async def isthmus(home: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    def call() -> subprocess.CompletedProcess[str]:
        given: dict[str, Any] = {"env": home, "stdin": subprocess.DEVNULL, "timeout": 60}
        command = [sys.executable, "-m", "isthmus.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, **given)

    return await asyncio.to_thread(call)


def files(home: dict[str, str]) -> list[Path]:
    return sorted((Path(home["XDG_CONFIG_HOME"]) / "isthmus").glob("*"))


async def test_a_person_signs_in_works_is_renewed_and_signs_out(
    api: RunningApi, provider: TestProvider, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.polls = [PENDING]
    done = await isthmus(home, "login", "--url", api.url, "--oidc", provider.issuer, "--no-browser")
    assert done.returncode == 0, done.stderr
    link = f"{provider.issuer}/confirm"
    assert done.stdout.splitlines() == [
        f"open {link} and enter the code WDJB-MJHT",
        f"or open {link}?user_code=WDJB-MJHT",
        f"signed in to {api.url} as ada@example.org, tenant physics",
    ]
    config, path = files(home)
    kept = read_sign_in(path)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (config, path)] == [0o600, 0o600]
    said = done.stdout + done.stderr + config.read_text()
    assert not any(secret in said for secret in (kept.id_token, str(kept.refresh_token)))
    assert "ada@example.org" in (await isthmus(home, "whoami")).stdout
    # What kubectl runs.
    plug_in = json.loads(config.read_text())["users"][0]["user"]["exec"]
    ran = await asyncio.to_thread(
        subprocess.run, [plug_in["command"], *plug_in["args"]], env=home, capture_output=True, check=True
    )
    assert json.loads(ran.stdout)["status"]["token"] == kept.id_token

    # A client that lives longer than its token, and one that does not block.
    access = find_access(environment=home)
    with Client.at(access) as client:
        assert (await asyncio.to_thread(client.whoami))["username"] == "ada@example.org"
        keep(path, replace(kept, renewed_from=time.time() - 1, id_token=provider.token(exp=1)))
        assert (await asyncio.to_thread(client.whoami))["username"] == "ada@example.org"
    assert read_sign_in(path).refresh_token in provider.refresh_tokens
    keep(path, replace(read_sign_in(path), renewed_from=time.time() - 1, id_token=provider.token(exp=1)))
    async with AsyncClient.at(access) as patient:
        assert (await patient.whoami())["username"] == "ada@example.org"
    provider.claims["groups"] = ["chess"]
    keep(path, replace(read_sign_in(path), renewed_from=time.time() - 1))
    lost = await isthmus(home, "whoami")
    assert (lost.returncode, "no rule" in lost.stderr) == (4, True), "whoever leaves a group has lost the role"

    # Again, and nothing of the first time remains.
    provider.claims["groups"] = ["physics"]
    again = await isthmus(home, "login", "--url", api.url, "--oidc", provider.issuer, "--no-browser")
    assert again.returncode == 0, again.stderr
    assert len(files(home)) == 2
    assert path not in files(home)
    assert len(provider.refresh_tokens) == 1
    out = await isthmus(home, "logout")
    assert (out.returncode, out.stdout, provider.refresh_tokens) == (0, "signed out\n", set()), out.stderr
    assert files(home) == [config]
    assert read_access(config) is None
    assert (await isthmus(home, "logout")).stdout == "you were not signed in\n"


async def test_nothing_is_kept_of_whom_the_server_refuses(
    api: RunningApi, provider: TestProvider, home: dict[str, str]
) -> None:
    provider.claims["email"] = "mallory@example.org"
    words = ("login", "--url", api.url, "--no-browser", "--oidc")
    refused = await isthmus(home, *words, provider.issuer)
    assert (refused.returncode, "blocked" in refused.stderr) == (4, True), refused.stderr
    assert (files(home), provider.refresh_tokens) == ([], set())
    asked = len(provider.asked)
    unknown = await isthmus(home, *words, "https://evil.example.org")
    assert (unknown.returncode, provider.issuer in unknown.stderr) == (2, True), unknown.stderr
    assert len(provider.asked) == asked


async def test_what_everybody_may_know_of_providers(api: RunningApi, provider: TestProvider) -> None:
    path = "/.well-known/isthmus/identity-providers"
    async with api.client("") as stranger, api.client("admin") as admin:
        offer = {"name": "campus", "issuer": provider.issuer, "clientId": CLIENT, "scopes": []}
        assert (await stranger.get(path)).json() == {"items": [offer]}
        headers = {"Content-Type": "application/merge-patch+json"}
        change = {"spec": {"disabled": True}}
        await admin.patch("/apis/isthmus.dev/v1/identityproviders/campus", json=change, headers=headers)
        assert (await stranger.get(path)).json() == {"items": []}


async def test_polls_keep_to_the_providers_pace(provider: TestProvider) -> None:
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    def flow() -> ProviderTokens:
        offer = ProviderOffer(provider.issuer, CLIENT)
        addresses = device_flow.find_addresses(offer)
        code = device_flow.ask_for_code(offer, addresses)
        return device_flow.await_tokens(offer, addresses, code, sleep=sleep, clock=lambda: now[0])

    provider.polls = [PENDING, {"error": "slow_down"}, PENDING]
    assert (await asyncio.to_thread(flow)).subject == "ada"
    assert pauses == [1, 1, 6, 6]
    provider.polls = [PENDING] * 100
    provider.device = {"expires_in": 20, "interval": 5}
    pauses.clear()
    with pytest.raises(Unauthenticated, match="in time"):
        await asyncio.to_thread(flow)
    assert pauses == [5, 5, 5, 5]
    provider.polls = [{"error": "access_denied"}]
    with pytest.raises(Unauthenticated, match="refused"):
        await asyncio.to_thread(flow)


async def test_answers_are_bounded(provider: TestProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.client.oidc.provider_asking.SECONDS", 0.5)
    for wrong, said in (
        ({"answer": b"x" * 1_000_000}, "more than"),
        ({"answer": b"[" * 100_000}, "nothing that can be used"),
        ({"answer": b"[]"}, "nothing that can be used"),
        ({"answer": None, "delay": 3.0}, "within"),
    ):
        for name, value in wrong.items():
            setattr(provider, name, value)
        with pytest.raises(Unavailable, match=said):
            await asyncio.to_thread(ask, f"{provider.issuer}/jwks", None)


def kept_of(provider: TestProvider, **changes: Any) -> SignIn:
    provider.refresh_tokens.add("first")
    addresses = (f"{provider.issuer}/token", f"{provider.issuer}/revoke")
    sign_in = SignIn(provider.issuer, CLIENT, None, *addresses, "ada", provider.token(), "first", 1000, 1080, 1100)
    return replace(sign_in, **changes)


async def test_a_token_is_renewed_once_whoever_needs_it(provider: TestProvider, tmp_path: Path) -> None:
    path = tmp_path / "x.signin"
    keep(path, kept_of(provider))
    assert (await asyncio.to_thread(renewed, path, 1079.0)).refresh_token == "first"
    found = await asyncio.gather(*(asyncio.to_thread(renewed, path, 1090.0) for _ in range(8)))
    assert {one.refresh_token for one in found} == provider.refresh_tokens
    assert provider.asked.count("/token") == 1
    keep(path, kept_of(provider, received=5000, renewed_from=5080, ends=5100))
    assert (await asyncio.to_thread(renewed, path, 1090.0)).received == 1090, "the clock was put back"


async def test_a_token_serves_to_its_end_while_it_cannot_be_renewed(provider: TestProvider, tmp_path: Path) -> None:
    path = tmp_path / "x.signin"
    keep(path, kept_of(provider))
    provider.answer = b"rubbish"
    assert (await asyncio.to_thread(renewed, path, 1090.0)).refresh_token == "first"
    with pytest.raises(Unavailable):
        await asyncio.to_thread(renewed, path, 1100.0)
    provider.answer = None
    provider.refresh_tokens.clear()
    assert (await asyncio.to_thread(renewed, path, 1090.0)).id_token == read_sign_in(path).id_token
    assert read_sign_in(path).refresh_token is None, "what the provider refused is not sent again"
    with pytest.raises(Unauthenticated, match="sign in again"):
        await asyncio.to_thread(renewed, path, 1100.0)


async def test_a_provider_cannot_make_one_person_another(provider: TestProvider, tmp_path: Path) -> None:
    path = tmp_path / "x.signin"
    keep(path, kept_of(provider))
    provider.claims["sub"] = "mallory"
    with pytest.raises(Unauthenticated, match="somebody else"):
        await asyncio.to_thread(renewed, path, 1090.0)
    assert read_sign_in(path).subject == "ada"


async def test_signing_out_forgets_though_the_provider_is_away(provider: TestProvider, tmp_path: Path) -> None:
    path = tmp_path / "x.signin"
    keep(path, kept_of(provider, revocation_address="http://127.0.0.1:1/revoke"))
    assert "not revoked" in str(await asyncio.to_thread(forget, path))
    assert not path.exists()
    assert await asyncio.to_thread(forget, path) is None
