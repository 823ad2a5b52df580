"""Tokens of identity providers at the API: good ones are taken, forged ones are not, and no provider harms others."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from isthmus.testing.apis import RunningApi, running_api
from isthmus.testing.oidc_provider import CLIENT, TestProvider, running_provider

pytestmark = pytest.mark.anyio
PROVIDERS = "/apis/isthmus.dev/v1/identityproviders"
JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"
RULES = [{"claim": "groups", "equals": "physics", "tenant": "physics"}]
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


@pytest.fixture
async def provider() -> AsyncIterator[TestProvider]:
    async with running_provider() as provider:
        provider.claims["groups"] = ["physics"]
        yield provider


async def add(api: RunningApi, provider: TestProvider, name: str = "campus", **spec: Any) -> None:
    given = {"issuer": provider.issuer, "clientId": CLIENT, "rules": RULES, **spec}
    async with api.client("admin") as client:
        answer = await client.post(
            PROVIDERS, json={"kind": "IdentityProvider", "metadata": {"name": name}, "spec": given}
        )
    assert answer.status_code == 201, answer.text


async def change(api: RunningApi, **spec: Any) -> None:
    async with api.client("admin") as client:
        answer = await client.patch(f"{PROVIDERS}/campus", json={"spec": spec}, headers=MERGE)
    assert answer.status_code == 200, answer.text


async def ask(api: RunningApi, token: str, path: str = JOBS) -> httpx.Response:
    async with api.client("", {"Authorization": f"Bearer {token}"}) as client:
        return await client.get(path)


async def test_a_person_of_a_provider_works_and_is_named(api: RunningApi, provider: TestProvider) -> None:
    await add(api, provider)
    token = provider.token()
    assert (await ask(api, token)).status_code == 200
    assert (await ask(api, token, JOBS.replace("physics", "biology"))).status_code == 403
    async with api.client("", {"Authorization": f"Bearer {token}"}) as client:
        made = await client.post(JOBS, json={"kind": "Job", "metadata": {"name": "one"}, "spec": {"command": ["true"]}})
        me = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={})
    assert made.json()["status"]["member"] == "ada@example.org"
    assert me.json()["status"]["userInfo"]["username"] == "ada@example.org"
    async with api.client("admin") as client:
        kept = await client.get("/apis/isthmus.dev/v1/audit", params={"user": "ada@example.org", "verb": "create"})
    assert [entry["credential"] for entry in kept.json()["items"]][:1] == ["provider campus"]


def forged(provider: TestProvider) -> dict[str, str]:
    """Tokens that nobody may take, by what is wrong with them."""
    now = int(time.time())
    good = provider.token()
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    def shared_secret(secret: bytes) -> str:
        import hashlib
        import hmac

        signed = f"{part({'alg': 'HS256', 'kid': provider.key_id})}.{body}"
        digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

    stranger = TestProvider()
    stranger.issuer, stranger.key_id, stranger.claims = provider.issuer, provider.key_id, provider.claims
    own_key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(stranger.key.public_key()))
    return {
        "alg none": f"{part({'alg': 'none'})}.{body}.",
        "alg None": f"{part({'alg': 'None', 'kid': provider.key_id})}.{body}.",
        "no signature": f"{head}.{body}.",
        "another body": f"{head}.{part({**claims, 'email': 'root@example.org'})}.{signature}",
        "the public key as a secret": shared_secret(provider.public_pem()),
        "the empty secret": shared_secret(b""),
        "another's key under the same name": stranger.token(),
        "a key in the header": stranger.token({"jwk": own_key}),
        "keys elsewhere": stranger.token({"jku": "http://127.0.0.1:1/jwks", "kid": "x"}),
        "a critical extension": provider.token({"crit": ["b64"], "b64": True}),
        "another audience": provider.token(aud="another-program"),
        "no audience": provider.token(aud=None),
        "made for another": provider.token(aud=[CLIENT, "other"], azp="other"),
        "another issuer": provider.token(iss=provider.issuer + "/"),
        "an unknown issuer": provider.token(iss="https://evil.example.org"),
        "no issuer": provider.token(iss=None),
        "expired": provider.token(exp=now - 60),
        "never ends": provider.token(exp=None),
        "ends in words": provider.token().replace(".", "..", 1),
        "not yet": provider.token(nbf=now + 600),
        "made tomorrow": provider.token(iat=now + 86_400),
        "nobody": provider.token(sub=None),
        "no address": provider.token(email=None),
        "not verified": provider.token(email_verified=False),
        "too long": provider.token(padding="x" * 20_000),
        "nested": f"{head}.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.{signature}",
        "rubbish": "a.b.c",
        "empty parts": "..",
    }  # fmt: skip


async def test_forged_tokens_are_refused(api: RunningApi, provider: TestProvider) -> None:
    await add(api, provider)
    assert (await ask(api, provider.token())).status_code == 200
    for what, token in forged(provider).items():
        answer = await ask(api, token)
        assert answer.status_code == 401, f"{what}: {answer.status_code} {answer.text}"
    assert (await ask(api, provider.token())).status_code == 200


async def test_audiences_beside_the_client_are_taken_where_they_are_named(
    api: RunningApi, provider: TestProvider
) -> None:
    await add(api, provider, audiences=["urn:api"])
    assert (await ask(api, provider.token(aud="urn:api"))).status_code == 200
    assert (await ask(api, provider.token(aud=["urn:api", "other"], azp=CLIENT))).status_code == 200
    await change(api, audiences=[])
    assert (await ask(api, provider.token(aud="urn:api"))).status_code == 401


async def test_rotated_keys_are_fetched_when_they_are_needed(
    api: RunningApi, provider: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(api, provider)
    assert (await ask(api, provider.token())).status_code == 200
    provider.rotate()
    assert (await ask(api, provider.token())).status_code == 401, "asked a moment ago, and not again for every token"
    with monkeypatch.context() as later:
        later.setattr("isthmus.identity.oidc.providers.PAUSE_SECONDS", 0)
        assert (await ask(api, provider.token())).status_code == 200
    asked = len(provider.asked)
    for _ in range(20):
        assert (await ask(api, provider.token({"kid": "made-up"}))).status_code == 401
    assert len(provider.asked) == asked


async def test_rights_follow_the_rules_and_the_claims_at_once(api: RunningApi, provider: TestProvider) -> None:
    await add(api, provider)
    token = provider.token()
    assert (await ask(api, token)).status_code == 200
    provider.claims["groups"] = ["chess"]
    assert (await ask(api, provider.token())).status_code == 401, "the next token has lost the group"
    await change(api, blocked=["ada@example.org"])
    refused = await ask(api, token)
    assert (refused.status_code, "blocked" in refused.text) == (401, True)
    await change(api, blocked=[], rules=[])
    assert (await ask(api, token)).status_code == 401
    async with api.client("admin") as client:
        members = {"spec": {"members": [{"user": "ada@example.org", "role": "viewer"}]}}
        await client.patch("/apis/isthmus.dev/v1/tenants/physics", json=members, headers=MERGE)
    assert (await ask(api, token)).status_code == 200, "whom a tenant names needs no rule"
    await change(api, disabled=True)
    assert (await ask(api, token)).status_code == 401


async def test_a_provider_that_is_broken_harms_nobody_else(
    api: RunningApi, provider: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.identity.oidc.provider_calls.SECONDS", 0.3)
    await add(api, provider)
    assert (await ask(api, provider.token())).status_code == 200
    async with running_provider() as bad:
        bad.claims["groups"] = ["physics"]
        for wrong in ({"delay": 2.0}, {"answer": b"x" * 2_000_000}, {"answer": b"["}, {"answer": b'{"keys": 5}'},
                      {"names_itself": provider.issuer}):  # fmt: skip
            bad.delay, bad.answer, bad.names_itself = 0.0, None, ""
            for name, value in wrong.items():
                setattr(bad, name, value)
            await add(api, bad, "bad")
            answer = await ask(api, bad.token())
            assert (answer.status_code, "cannot be asked" in answer.text) == (401, True), wrong
            assert (await ask(api, provider.token())).status_code == 200
            async with api.client("member") as client:
                assert (await client.get(JOBS)).status_code == 200
            async with api.client("admin") as client:
                assert (await client.delete(f"{PROVIDERS}/bad")).status_code == 200
    provider.answer = b"rubbish"
    monkeypatch.setattr("isthmus.identity.oidc.providers.PAUSE_SECONDS", 0)
    assert (await ask(api, provider.token({"kid": "new"}))).status_code == 401
    assert (await ask(api, provider.token())).status_code == 200, "the keys that it had go on serving"


async def test_only_administrators_see_and_change_providers(api: RunningApi, provider: TestProvider) -> None:
    await add(api, provider)
    async with api.client("member") as client:
        assert (await client.get(PROVIDERS)).status_code == 403
        assert (await client.delete(f"{PROVIDERS}/campus")).status_code == 403
