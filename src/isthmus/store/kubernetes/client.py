"""Requests to an API server: the only I/O of this store.

So many requests are under way at once, the others queue here and not at the server. An answer 429 means that nothing
was done: it is asked again when the server says so, for as long as one waits for an answer at all. Nothing else is
repeated. When a connection breaks, the error says whether the request can have reached the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import orjson

from isthmus.errors import Invalid, StoreUnavailable
from isthmus.store.settings import StoreSettings

from .access import Access
from .answers import error_of

log = logging.getLogger(__name__)

Params = Mapping[str, str | int]
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Api:
    """One cluster."""

    def __init__(self, access: Access, settings: StoreSettings) -> None:
        self.server = access.server
        self._access, self._settings = access, settings
        self._slots = asyncio.Semaphore(settings.requests)
        self._http: httpx.AsyncClient | None = None
        self.sent = 0
        """Requests sent so far."""

    def open(self) -> None:
        """Be ready for requests; connects when the first is made."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._settings.requests)
        self._http = httpx.AsyncClient(
            base_url=self._access.server,
            verify=self._access.tls if self._access.tls is not None else True,
            auth=self._access.auth,
            timeout=self._settings.answer_wait,
            limits=limits,
            trust_env=False,
            headers={"User-Agent": "isthmus", "Accept": "application/json"},
        )

    async def close(self) -> None:
        """Let go of all connections."""
        if self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    async def get(self, path: str, what: str, params: Params | None = None) -> Any:
        """Read. Without effect, so a connection that the server had just closed is made anew, once."""
        try:
            return await self._call("GET", path, what, params)
        except httpx.TransportError:
            try:
                return await self._call("GET", path, what, params)
            except httpx.TransportError as error:
                raise self._away(error, "try again") from error

    async def send(
        self, method: str, path: str, what: str, body: Any = None, params: Params | None = None, content: str = ""
    ) -> Any:
        """Write."""
        try:
            data = orjson.dumps(body) if body is not None else b""
        except TypeError as error:  # not JSON: nested too deep, a number beyond 64 bits, a broken character
            raise Invalid(f"{what} cannot be written as JSON: {error}") from None
        try:
            return await self._call(method, path, what, params, data, content or "application/json")
        except _UNSENT as error:
            raise self._away(error, "nothing was changed") from error
        except httpx.TransportError as error:
            raise self._away(
                error, "it is not known whether the change was made; read the object before trying again"
            ) from error

    async def _call(
        self, method: str, path: str, what: str, params: Params | None, data: bytes = b"", content: str = ""
    ) -> Any:
        deadline = time.monotonic() + self._settings.answer_wait
        headers = {"Content-Type": content} if content else {}
        while True:
            async with self._slots:
                self.sent += 1
                answer = await self._client().request(method, path, params=params, content=data, headers=headers)
            if answer.status_code < 300:
                return orjson.loads(answer.content) if answer.content else {}
            pause = _pause(answer)
            if answer.status_code != 429 or time.monotonic() + pause > deadline:
                raise error_of(answer.status_code, answer.content, what)
            log.info("store.throttled pause=%.1fs", pause)
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def lines(self, path: str, params: Params) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that does not end; raises when nothing came for `silence` seconds."""
        wait = httpx.Timeout(self._settings.answer_wait, read=self._settings.silence)
        try:
            self.sent += 1
            async with self._client().stream("GET", path, params=params, timeout=wait) as answer:
                if answer.status_code >= 300:
                    raise error_of(answer.status_code, await answer.aread(), "the watch was refused")
                yield _lines(answer.aiter_bytes())
        except httpx.TransportError as error:
            raise self._away(error, "it is watched again from where it stopped") from error

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            raise StoreUnavailable("the store is closed")
        return self._http

    def _away(self, error: httpx.TransportError, then: str) -> StoreUnavailable:
        return StoreUnavailable(f"the API server at {self.server} does not answer ({error!r}); {then}")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


def _pause(answer: httpx.Response) -> float:
    try:
        return max(0.1, float(answer.headers.get("Retry-After", "1")))
    except ValueError:
        return 1.0
