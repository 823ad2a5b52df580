"""Asking an identity provider: one question, one JSON object. Bounded in time and size, and never redirected.

It runs in a thread with an event loop of its own, so that the limit counts for the whole answer, however slowly its
bytes come, and whoever asks.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from isthmus.errors import Misconfigured, Unavailable

SECONDS = 10.0
MOST_BYTES = 256 * 1024


class ProviderAnswer(NamedTuple):
    """What a provider answered."""

    status: int
    document: dict[str, Any]


def ask(address: str, authorities: str | None, form: Mapping[str, str] | None = None) -> ProviderAnswer:
    """Read a document, or send a form; raises Unavailable."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(_ask(address, authorities, form))).result()


async def _ask(address: str, authorities: str | None, form: Mapping[str, str] | None) -> ProviderAnswer:
    import httpx

    trust = ssl.create_default_context()
    if authorities:
        try:
            trust.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError):
            raise Misconfigured(
                "the server names authorities for the provider that are no certificates; tell its administrator"
            ) from None
    where = address.partition("?")[0]
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(verify=trust, timeout=SECONDS) as client:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            method = "GET" if form is None else "POST"
            async with client.stream(method, address, headers=headers, data=form) as answer:
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise Unavailable(f"{where} answers with more than {MOST_BYTES // 1024} KiB")
    except TimeoutError:
        raise Unavailable(f"{where} did not answer within {SECONDS:.0f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        why = "its certificate is not trusted" if "CERTIFICATE_VERIFY" in str(error) else type(error).__name__
        raise Unavailable(f"{where} cannot be reached ({why})") from None
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        found = None
    if answer.status_code >= 500 or not isinstance(found, dict):
        raise Unavailable(f"{where} answers with status {answer.status_code} and nothing that can be used")
    return ProviderAnswer(answer.status_code, found)
