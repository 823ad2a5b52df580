"""Asking a provider: its description, and its keys. Bounded in time and size, and never redirected.

Whatever a provider answers is foreign: a document is at most 512 KiB, arrives within five seconds, and names only
addresses that are as safe as the provider's own.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from isthmus.errors import Unavailable
from isthmus.resources.identityproviders import IdentityProviderSpec

SECONDS = 5.0
MOST_BYTES = 512 * 1024


async def fetch_keys(spec: IdentityProviderSpec) -> Any:
    """The provider's keys, as they were sent; raises Unavailable."""
    document = await _ask(spec, spec.issuer.rstrip("/") + "/.well-known/openid-configuration")
    if not isinstance(document, dict) or document.get("issuer") != spec.issuer:
        raise Unavailable(f"what {spec.issuer} says of itself names another issuer")
    address = str(document.get("jwks_uri") or "")
    if not _is_safe(spec, address):
        raise Unavailable(f"what {spec.issuer} says of itself has no address of keys that may be used")
    return await _ask(spec, address)


def _is_safe(spec: IdentityProviderSpec, address: str) -> bool:
    """Whether an address is reached as safely as the issuer: by TLS, or on this machine if that is there too."""
    parts, own = urlsplit(address), urlsplit(spec.issuer)
    if parts.username or not parts.hostname:
        return False
    return parts.scheme == "https" or (own.scheme == "http" and parts.netloc == own.netloc and parts.scheme == "http")


async def _ask(spec: IdentityProviderSpec, address: str) -> Any:
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
            async with client.stream("GET", address, headers=headers) as answer:
                body = bytearray()
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise Unavailable(f"{spec.issuer} answers with more than {MOST_BYTES // 1024} KiB")
    except TimeoutError:
        raise Unavailable(f"{spec.issuer} did not answer within {SECONDS:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise Unavailable(f"{spec.issuer} cannot be reached ({type(error).__name__})") from None
    if answer.status_code != 200:
        raise Unavailable(f"{spec.issuer} answers with status {answer.status_code}")
    try:
        return orjson.loads(bytes(body))
    except ValueError:
        raise Unavailable(f"{spec.issuer} answers with something that is not JSON") from None
