"""Asking a provider: its description, its keys, and tokens for a code. Bounded in time and size, and never redirected.

Whatever a provider answers is foreign: a document is at most 512 KiB, arrives within five seconds, and names only
addresses that are as safe as the provider's own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import orjson

from isthmus.errors import Unauthenticated, Unavailable
from isthmus.resources.identityproviders import IdentityProviderSpec

SECONDS = 5.0
MOST_BYTES = 512 * 1024
_LONGEST_SECRET = 4096


class ProviderPlaces(NamedTuple):
    """Where a provider does what."""

    authorization: str
    token: str
    keys: str
    end_session: str = ""


async def discover(spec: IdentityProviderSpec) -> ProviderPlaces:
    """Read the description of a provider; raises Unavailable."""
    document = await _ask(spec, "GET", spec.issuer.rstrip("/") + "/.well-known/openid-configuration")
    if not isinstance(document, dict) or document.get("issuer") != spec.issuer:
        raise Unavailable(f"what {spec.issuer} says of itself names another issuer")
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint")
    found = [str(document.get(name) or "") for name in names]
    for name, address in zip(names, found, strict=True):
        if (address or name != "end_session_endpoint") and not _is_safe(spec, address):
            raise Unavailable(f"what {spec.issuer} says of itself has no address for {name} that may be used")
    return ProviderPlaces(*found)


async def fetch_keys(spec: IdentityProviderSpec, places: ProviderPlaces) -> Any:
    """The provider's keys, as they were sent; raises Unavailable."""
    return await _ask(spec, "GET", places.keys)


async def exchange(spec: IdentityProviderSpec, places: ProviderPlaces, form: Mapping[str, str]) -> dict[str, Any]:
    """Tokens for a code; raises Unauthenticated if the provider refuses, Unavailable if it does not answer."""
    sent = {**form, "client_id": spec.client_id}
    if spec.client_secret_file:
        sent["client_secret"] = _secret(spec.client_secret_file)
    found = await _ask(spec, "POST", places.token, sent)
    if not isinstance(found, dict) or not isinstance(found.get("id_token"), str):
        raise Unavailable(f"{spec.issuer} gave no token that says who somebody is")
    return found


def _secret(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_SECRET).decode().strip()
    except (OSError, ValueError):
        raise Unavailable("the secret of this provider cannot be read on the server; ask an administrator") from None


def _is_safe(spec: IdentityProviderSpec, address: str) -> bool:
    """Whether an address is reached as safely as the issuer: by TLS, or on this machine if that is there too."""
    parts, own = urlsplit(address), urlsplit(spec.issuer)
    if parts.username or not parts.hostname:
        return False
    return parts.scheme == "https" or (own.scheme == "http" and parts.netloc == own.netloc and parts.scheme == "http")


async def _ask(spec: IdentityProviderSpec, method: str, address: str, form: Mapping[str, str] | None = None) -> Any:
    trust: ssl.SSLContext | bool = True
    if spec.authorities:
        try:
            trust = ssl.create_default_context()
            trust.load_verify_locations(cadata=spec.authorities)
        except (ssl.SSLError, ValueError):
            raise Unavailable(f"the authorities for {spec.issuer} are no certificates; correct the provider") from None
    try:
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(verify=trust, timeout=SECONDS) as client:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            async with client.stream(method, address, data=form, headers=headers) as answer:
                body = bytearray()
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise Unavailable(f"{spec.issuer} answers with more than {MOST_BYTES // 1024} KiB")
    except TimeoutError:
        raise Unavailable(f"{spec.issuer} did not answer within {SECONDS:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise Unavailable(f"{spec.issuer} cannot be reached ({type(error).__name__})") from None
    if form is not None and answer.status_code in (400, 401, 403):
        raise Unauthenticated("the provider refused: the sign-in was used already or took too long; begin again")
    if answer.status_code != 200:
        raise Unavailable(f"{spec.issuer} answers with status {answer.status_code}")
    try:
        return orjson.loads(bytes(body))
    except ValueError:
        raise Unavailable(f"{spec.issuer} answers with something that is not JSON") from None
