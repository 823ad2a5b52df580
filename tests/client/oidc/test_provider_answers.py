"""What a provider may say, and what of it is used or shown."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from isthmus.client.oidc.provider_answers import (
    DeviceCode,
    ProviderOffer,
    choose,
    next_pause,
    read_addresses,
    read_code,
    read_tokens,
    reason_in,
)
from isthmus.errors import Invalid, IsthmusError, Unauthenticated, Unavailable

ISSUER = "https://id.example.org"
OFFER = ProviderOffer(ISSUER, "isthmus", ["entitlements"])
SELF = {
    "issuer": ISSUER,
    "device_authorization_endpoint": f"{ISSUER}/device",
    "token_endpoint": f"{ISSUER}/token",
    "revocation_endpoint": f"{ISSUER}/revoke",
}
CODE = {"device_code": "secret", "user_code": "AB-CD", "verification_uri": f"{ISSUER}/confirm"}


def test_a_description_gives_addresses_and_scopes_that_the_provider_has() -> None:
    found = read_addresses(OFFER, 200, SELF)
    assert (found.device, found.token, found.revocation) == (f"{ISSUER}/device", f"{ISSUER}/token", f"{ISSUER}/revoke")
    assert found.scope == "openid email profile offline_access entitlements"
    assert read_addresses(OFFER, 200, {**SELF, "scopes_supported": ["email"]}).scope == "openid email entitlements"


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.example.org"},
        {"token_endpoint": "http://id.example.org/token"},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": "https://user@id.example.org/token"},
        {"token_endpoint": "https://[broken/token"},
        {"device_authorization_endpoint": None},
        {"device_authorization_endpoint": ["https://id.example.org"]},
    ],
)
def test_a_description_that_leads_elsewhere_is_not_followed(change: dict[str, Any]) -> None:
    with pytest.raises(IsthmusError):
        read_addresses(OFFER, 200, {**SELF, **change})


def test_a_code_is_bounded_in_time() -> None:
    assert read_code(OFFER, 200, CODE) == DeviceCode("secret", "AB-CD", f"{ISSUER}/confirm", None, 300, 5)
    for said, seconds, pause in ((0, 1, 1), (1e300, 1800, 60), (float("nan"), 300, 5), ("9", 300, 5), (True, 300, 5)):
        found = read_code(OFFER, 200, {**CODE, "expires_in": said, "interval": said})
        assert (found.seconds, found.pause) == (seconds, pause), said


@pytest.mark.parametrize(
    "change",
    [
        {"user_code": "\x1b]0;owned\x07"},
        {"user_code": "A" * 1000},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://id.example.org/confirm"},
        {"verification_uri": f"{ISSUER}/\x1b[2J"},
        {"verification_uri": f"{ISSUER}/ --new-window"},
        {"verification_uri": None},
        {"device_code": {"a": 1}},
    ],
)
def test_a_code_that_would_harm_a_terminal_or_a_browser_is_not_shown(change: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        read_code(OFFER, 200, {**CODE, **change})
    assert read_code(OFFER, 200, {**CODE, "verification_uri_complete": "file:///x"}).whole_link is None


def test_polls_wait_slow_down_and_end() -> None:
    assert next_pause(OFFER, {"error": "authorization_pending"}, 5) == 5
    assert next_pause(OFFER, {"error": "slow_down"}, 5) == 10
    for error, said in (("access_denied", "refused"), ("expired_token", "in time"), ("x\x1b[2J", "x [2J"), (7, "7")):
        with pytest.raises(Unauthenticated, match=said.replace("[", r"\[")):
            next_pause(OFFER, {"error": error}, 5)
    assert len(reason_in({"error_description": "\n" * 100_000})) <= 200


def token(claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.sig"


def test_tokens_say_how_long_they_are_good_whatever_the_clock() -> None:
    found = read_tokens(ISSUER, {"id_token": token({"exp": 700, "iat": 100, "sub": "ada"}), "refresh_token": "r"})
    assert (found.seconds, found.subject, found.refresh_token) == (600, "ada", "r")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"id_token": "ist_a_b"},
        {"id_token": "a.b\r\nX-Evil: 1.c"},
        {"id_token": "e30.e30.e30"},
        {"id_token": f"e30.{'W' * 9000}.sig"},
        {"id_token": token([1])},
        {"id_token": token({"exp": 1, "iat": 1, "sub": "a"})},
        {"id_token": token({"exp": 1e999, "iat": 1, "sub": "a"})},
        {"id_token": token({"exp": "x", "iat": 1, "sub": "a"})},
        {"id_token": token({"exp": 2, "iat": 1, "sub": "a", "more": "x" * 20_000})},
        {"id_token": token({"exp": 2, "iat": 1, "sub": "a"}), "refresh_token": ["x"]},
        {"id_token": token({"exp": 2, "iat": 1, "sub": "a"}), "refresh_token": "x\ny"},
    ],
)
def test_tokens_that_cannot_be_used_are_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        read_tokens(ISSUER, answer)


def test_only_a_provider_that_the_server_names_is_asked() -> None:
    assert choose([OFFER], ISSUER + "/", "https://isthmus") is OFFER
    with pytest.raises(Invalid, match=ISSUER):
        choose([OFFER], "https://evil.example.org", "https://isthmus")
