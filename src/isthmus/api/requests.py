"""What every handler needs of a request: who sends it, whether they may, its bounded body, and when to stop.

`caller_of` authenticates, `require` authorises, `read_body` never keeps more than its limit in memory, and
`lifeline` says to a stream when it must end: the client left, its token ended, or the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request

from isthmus.errors import Forbidden, TooLarge, Unauthenticated
from isthmus.identity.authorizing import allowed
from isthmus.identity.callers import Caller
from isthmus.resources.kinds import KINDS, derived

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from .context import Context


@derived
def _groups() -> dict[str, str]:
    return {kind.plural: kind.group for kind in KINDS.values()}


CALLER = "isthmus.caller"
"""Where a scope has who was recognised."""


def authorization_of(scope: Scope) -> bytes | None:
    """The Authorization header, as it was sent."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    return None


async def caller_of(request: HTTPConnection, context: Context) -> Caller:
    """Who sends the request; raises Unauthenticated."""
    return await authenticated(request.scope, context)


async def authenticated(scope: Scope, context: Context) -> Caller:
    """The same for a bare ASGI request. Who presents bad credentials again and again is answered ever later."""
    header = authorization_of(scope)
    authenticator, slowing = context.authenticator, context.slowing
    address = (scope.get("client") or ("",))[0]
    if slowing.waiting and not authenticator.remembers(header):
        slowing.check(address)
    try:
        caller = scope[CALLER] = authenticator.authenticate(header)
        return caller
    except Unauthenticated:
        if header is not None and address:  # the console asks without one, and slows down by itself
            await slowing.failed(address, authenticator.name_in(header))
        raise


def require(caller: Caller, verb: str, resource: str, namespace: str, name: str = "", subresource: str = "") -> None:
    """Raise Forbidden unless the caller may do this. The message never says whether the thing exists."""
    if not allowed(caller, verb, resource, namespace, name, subresource):
        raise forbidden(caller, verb, resource, namespace, name, subresource)


def forbidden(
    caller: Caller, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
) -> Forbidden:
    """The refusal, in the words of Kubernetes."""
    group = _groups().get(resource, "isthmus.dev" if resource != "namespaces" else "")
    what = f"{resource}/{subresource}" if subresource else resource
    title = f"{resource}.{group}" if group else resource
    if name:
        title += f' "{name}"'
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    ask = "ask an admin of the tenant for a role that may" if namespace else "ask a platform admin"
    if namespace and caller.grants and namespace not in caller.grants:
        ask = f"your role is in {', '.join(sorted(caller.grants)[:3])}; {ask}"
    return Forbidden(
        f'{title} is forbidden: User "{caller.user}" cannot {verb} resource "{what}" in API group "{group}" {where}; '
        f"{ask}"
    )


BODY_SECONDS = 60.0


async def read_body(request: Request, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body; raises TooLarge as soon as it is known to be longer than `limit` bytes, and a 408 if it takes
    longer than that to arrive."""
    return await read_all(request.scope, request.receive, limit, seconds)


async def read_all(scope: Scope, receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """The same for a bare ASGI request.

    Most bodies are there with the head, so that only what is missing then is waited for by the clock; that something
    comes at all is seen to by the connection.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise too_large(limit)
    first, more = await _chunk(receive, 0, limit)
    if not more:
        return first
    try:
        async with asyncio.timeout(seconds):
            return await _read_rest(receive, first, limit)
    except TimeoutError:
        headers = {"Connection": "close"}
        raise HTTPException(408, f"the body did not arrive within {seconds:.0f} s; send it again", headers) from None


async def _read_rest(receive: Receive, first: bytes, limit: int) -> bytes:
    chunks, size, more = [first], len(first), True
    while more:
        chunk, more = await _chunk(receive, size, limit)
        size += len(chunk)
        chunks.append(chunk)
    return b"".join(chunks)


async def _chunk(receive: Receive, size: int, limit: int) -> tuple[bytes, bool]:
    """The next piece of a body of which there are so many bytes already, and whether there are more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    chunk: bytes = message.get("body", b"")
    if size + len(chunk) > limit:
        raise too_large(limit)
    return chunk, message.get("more_body", False)


def too_large(limit: int) -> TooLarge:
    """The refusal of a body above the limit."""
    return TooLarge(f"the request is larger than {limit} bytes; send large data as files and name them in the object")


@asynccontextmanager
async def lifeline(
    scope: Scope, receive: Receive, context: Context, caller: Caller, seconds: float | None = None
) -> AsyncIterator[None]:
    """Run a stream in this; its body is cancelled, and the block left quietly, when the stream must end.

    That is when the client disconnects, when its token is revoked, expires or gets other rights, when the server
    stops (`context.lifelines.close()`), and after `seconds`. The request's body must have been read before.
    """
    header = authorization_of(scope)
    try:
        async with asyncio.timeout(seconds) as limit:
            loop = asyncio.get_running_loop()

            def end() -> None:
                if not limit.expired():
                    limit.reschedule(loop.time())

            async def left() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                end()

            leaving = asyncio.create_task(left(), name="client leaves")
            with context.lifelines.hold(end), context.authenticator.following(header, caller, end):
                try:
                    yield
                finally:
                    leaving.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
