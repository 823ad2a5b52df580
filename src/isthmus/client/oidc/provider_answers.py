"""What a provider's answers mean, and what of them may be used or shown. Pure.

All of it is foreign: texts are short and printable before a terminal sees them, addresses are as safe as the
provider's own, and times are bounded.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from isthmus.errors import Invalid, Unauthenticated, Unavailable

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_SECONDS = 5.0
"""By which `slow_down` makes the pause longer (RFC 8628, 3.5)."""
_USUAL_SCOPES = ("email", "profile", "offline_access")
_LONGEST_WAIT = 1800.0
_LONGEST_PAUSE = 60.0
_LONGEST_TOKEN = 16_384
_LONGEST_TEXT = 200
_LONGEST_ADDRESS = 2048
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class ProviderOffer(NamedTuple):
    """A provider that the server accepts."""

    issuer: str
    client_id: str
    scopes: Sequence[str] = ()
    authorities: str | None = None


class ProviderAddresses(NamedTuple):
    """Where a provider does what."""

    device: str
    token: str
    revocation: str | None
    scope: str


class DeviceCode(NamedTuple):
    """A code that a person confirms in a browser."""

    secret: str
    shown: str
    link: str
    whole_link: str | None
    """With the code in it."""
    seconds: float
    pause: float


class ProviderTokens(NamedTuple):
    """What a provider gave; `id_token` is what the server is shown."""

    id_token: str
    refresh_token: str | None
    seconds: float
    """For which the ID token is good, from now on."""
    subject: str


def read_offers(document: Mapping[str, Any]) -> list[ProviderOffer]:
    """The providers that the server names."""
    return [
        ProviderOffer(
            str(item["issuer"]),
            str(item["clientId"]),
            [str(s) for s in item.get("scopes") or ()],
            item.get("authorities"),
        )
        for item in document.get("items") or ()
    ]


def choose(offers: Sequence[ProviderOffer], issuer: str, server: str) -> ProviderOffer:
    """The one meant; raises Invalid that names those there are."""
    for offer in offers:
        if offer.issuer.rstrip("/") == issuer.rstrip("/"):
            return offer
    there = ", ".join(offer.issuer for offer in offers) or "none; sign in with a token: isthmus login --token-file FILE"
    raise Invalid(f"{server} accepts nobody from {issuer}; the providers that it accepts: {there}")


def read_addresses(offer: ProviderOffer, status: int, found: Mapping[str, Any]) -> ProviderAddresses:
    """Where the provider does what, by its own description; raises Unavailable, Invalid."""
    if status != 200 or found.get("issuer") != offer.issuer:
        raise Unavailable(f"what {offer.issuer} says of itself cannot be used: it does not name that issuer")
    device, token = (_address(offer, found.get(f"{name}_endpoint")) for name in ("device_authorization", "token"))
    if device is None or token is None:
        raise Invalid(
            f"{offer.issuer} does not offer the device flow; ask its administrators to enable it for the client"
        )
    known = found.get("scopes_supported")
    usual = [scope for scope in _USUAL_SCOPES if not isinstance(known, list) or scope in known]
    scope = " ".join(dict.fromkeys(["openid", *usual, *offer.scopes]))
    return ProviderAddresses(device, token, _address(offer, found.get("revocation_endpoint")), scope)


def read_code(offer: ProviderOffer, status: int, found: Mapping[str, Any]) -> DeviceCode:
    """The code to confirm; raises Unauthenticated, Unavailable."""
    if status != 200:
        raise Unauthenticated(
            f"{offer.issuer} gives no code: {reason_in(found)}; is the client registered for the device flow?"
        )
    secret, shown = found.get("device_code"), found.get("user_code")
    link, whole = (_address(offer, found.get(name)) for name in ("verification_uri", "verification_uri_complete"))
    if not _is_plain(secret, _LONGEST_TOKEN) or not _is_plain(shown, 64) or link is None:
        raise Unavailable(f"{offer.issuer} gives a code that cannot be used")
    seconds = _number(found.get("expires_in"), 300.0, 1.0, _LONGEST_WAIT)
    return DeviceCode(
        str(secret), str(shown), link, whole, seconds, _number(found.get("interval"), 5.0, 1.0, _LONGEST_PAUSE)
    )


def next_pause(offer: ProviderOffer, found: Mapping[str, Any], pause: float) -> float:
    """How long to wait after a refusal that is none; raises Unauthenticated for one that is."""
    match found.get("error"):
        case "authorization_pending":
            return pause
        case "slow_down":
            return min(pause + SLOWER_SECONDS, _LONGEST_PAUSE)
        case "access_denied":
            raise Unauthenticated(f"you, or {offer.issuer} for you, refused to sign in here")
        case "expired_token":
            raise too_late(offer.issuer)
    raise Unauthenticated(f"{offer.issuer} refuses to sign you in: {reason_in(found)}")


def too_late(issuer: str) -> Unauthenticated:
    """Nobody confirmed the code."""
    return Unauthenticated(f"the code of {issuer} was not confirmed in time; run `isthmus login` again")


def read_tokens(issuer: str, found: Mapping[str, Any]) -> ProviderTokens:
    """What the provider gave; raises Unauthenticated."""
    token, refresh = found.get("id_token"), found.get("refresh_token")
    if not isinstance(token, str) or len(token) > _LONGEST_TOKEN or not _JWT.fullmatch(token):
        raise Unauthenticated(f"{issuer} gives no ID token; its administrators must allow the scope openid")
    if refresh is not None and not _is_plain(refresh, _LONGEST_TOKEN):
        raise Unauthenticated(f"{issuer} gives a refresh token that cannot be used")
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        seconds, subject = float(claims["exp"]) - float(claims["iat"]), str(claims["sub"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Unauthenticated(
            f"{issuer} gives an ID token that does not say whose it is and how long it is good"
        ) from None
    if not 0 < seconds < 366 * 86_400:
        raise Unauthenticated(f"{issuer} gives an ID token whose end is not after its beginning")
    return ProviderTokens(token, refresh, seconds, subject)


def reason_in(found: Mapping[str, Any]) -> str:
    """What a provider says is wrong, as it may be shown."""
    said = found.get("error_description") or found.get("error") or "it does not say why"
    return "".join(char if char.isprintable() else " " for char in str(said)[:_LONGEST_TEXT])


def _address(offer: ProviderOffer, address: Any) -> str | None:
    """An address that is reached as safely as the issuer: by TLS, or on this machine if that is there too."""
    if not _is_plain(address, _LONGEST_ADDRESS) or " " in str(address):
        return None
    try:
        parts, own = urlsplit(str(address)), urlsplit(offer.issuer)
    except ValueError:
        return None
    near = own.scheme == parts.scheme == "http" and parts.netloc == own.netloc
    return str(address) if parts.hostname and not parts.username and (parts.scheme == "https" or near) else None


def _is_plain(text: Any, most: int) -> bool:
    return isinstance(text, str) and 0 < len(text) <= most and text.isascii() and text.isprintable()


def _number(value: Any, default: float, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return default
    return float(min(max(value, least), most))
