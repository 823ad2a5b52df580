"""Exchanges with the server over httpx, for the asynchronous client: steps of flows, and streams read along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from isthmus import errors

from . import requests
from .answers import Answer, read
from .kubeconfigs import Access
from .requests import Body, Request
from .transport import NO_TLS, not_trusted

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=32)


class AsyncTransport:
    """Connections to one server, shared by all tasks of a client."""

    def __init__(self, access: Access) -> None:
        self._url, self._access = access.url, access
        if not access.url.startswith(("http://", "https://")):
            raise errors.Misconfigured(
                f"{access.url!r} is not the address of a server; write it like http://127.0.0.1:7070"
            )
        verify: Any = True
        if access.ca:
            import ssl

            verify = ssl.create_default_context()
            verify.load_verify_locations(cadata=access.ca.decode())
        self._http = httpx.AsyncClient(
            base_url=access.url.rstrip("/"),
            headers=requests.headers_of(access),
            transport=httpx.AsyncHTTPTransport(verify=verify, limits=_LIMITS, socket_options=_socket_options()),
            trust_env=False,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def send(self, request: Request) -> Answer:
        """One exchange, read to its end."""
        async with self._exchange(request, request.patience) as response:
            try:
                body = await response.aread()
            except httpx.HTTPError as error:
                raise _lost(self._url, error) from None
            return Answer(response.status_code, response.headers, body)

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[httpx.Response]:
        """An answer that is read along; raises what it says if it is an error."""
        async with self._exchange(request, None) as response:
            if response.status_code >= 300:
                read(Answer(response.status_code, response.headers, await response.aread()))
            yield response

    @asynccontextmanager
    async def _exchange(self, request: Request, patience: float | None) -> AsyncIterator[httpx.Response]:
        built = self._build(request, patience)
        if self._access.sign_in is not None:
            from .oidc.sign_ins import current

            access = await asyncio.to_thread(current, self._access)
            built.headers["Authorization"] = f"Bearer {access.token}"
        try:
            response = await self._http.send(built, stream=True)
        except httpx.HTTPError as error:
            raise _lost(self._url, error) from None
        try:
            yield response
        finally:
            await response.aclose()

    def _build(self, request: Request, patience: float | None) -> httpx.Request:
        content: Any = request.body
        headers = {} if request.body is None else {"Content-Type": request.content_type}
        if isinstance(request.body, Body):
            headers["Content-Length"] = str(request.body.length)
            content = _in_threads(request.body.chunks())
        return self._http.build_request(
            request.method,
            request.target,
            content=content,
            headers=headers,
            timeout=httpx.Timeout(patience, connect=10.0),
        )

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """A stream as it comes; raises Unavailable when it is torn."""
        try:
            async for chunk in response.aiter_raw():
                yield chunk
        except httpx.HTTPError as error:
            raise _lost(self._url, error) from None


async def _in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A body read from files, without holding up the event loop."""
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _lost(url: str, error: httpx.HTTPError) -> errors.Unavailable:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return errors.Unreachable(f"{url} cannot be reached: {not_trusted('certificate verify failed')}")
    if isinstance(error, httpx.ConnectError) and "[SSL" in str(error):
        return errors.Unreachable(f"{url} cannot be reached: {NO_TLS}")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return errors.Unreachable(
            f"{url} cannot be reached: {str(error) or 'no answer in time'}; "
            "is the server running, and the address right?"
        )
    return errors.Unavailable(f"{url} stopped answering: {str(error) or type(error).__name__}")


def _socket_options() -> list[tuple[int, int, int]]:
    import socket

    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
