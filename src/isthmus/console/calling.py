"""Calling the API from inside: the console's requests take the way of everybody's, without a socket.

`Asker.ask` sends one request to the ASGI application with the user's own token and gives back the decoded answer,
or raises the error that the Status in it stands for. `forward` hands a request of the browser on as it is (a log
being followed, a file), with the token in place of the cookie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isthmus.api.auditing import NOWHERE, ORIGIN, Origin
from isthmus.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    IsthmusError,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

GROUP = "/apis/isthmus.dev/v1"
_ERRORS: dict[str, type[IsthmusError]] = {
    "RequestEntityTooLarge": TooLarge,
    "Invalid": Invalid,
    "BadRequest": Invalid,
    "UnsupportedMediaType": Invalid,
    "Unauthorized": Unauthenticated,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "ServiceUnavailable": Unavailable,
}
_PASSED_ON = (b"accept", b"last-event-id", b"range", b"if-none-match", b"if-range")


@dataclass(frozen=True, slots=True)
class Asker:
    """The API, as one user reaches it."""

    api: ASGIApp
    header: bytes
    origin: Origin = NOWHERE
    """Where the browser is, and which it is."""

    async def ask(
        self, method: str, path: str, body: Any = None, *, query: str = "", media: str = "application/json"
    ) -> Any:
        """One request; the decoded answer. `body` is bytes, or something to be written as JSON."""
        sent = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        code, answer = await self._send(method, path, sent, query, media)
        decoded = orjson.loads(answer) if answer else {}
        if code >= 400:
            raise error_of(decoded)
        return decoded

    async def get(self, path: str, query: str = "") -> Any:
        """Read something."""
        return await self.ask("GET", path, query=query)

    async def content(self, path: str, query: str = "") -> bytes:
        """Read some bytes; the caller sees to it that they are few."""
        code, answer = await self._send("GET", path, b"", query, "application/json")
        if code >= 400:
            raise error_of(orjson.loads(answer))
        return answer

    async def patch(self, path: str, change: Any) -> Any:
        """Merge a change into an object."""
        return await self.ask("PATCH", path, change, media="application/merge-patch+json")

    async def _send(self, method: str, path: str, body: bytes, query: str, media: str) -> tuple[int, bytes]:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        parts: list[bytes] = []
        code = 500

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            else:
                parts.append(message.get("body", b""))

        headers = [(b"content-type", media.encode()), (b"content-length", str(len(body)).encode())]
        await self.api(self._scope(method, path, query.encode(), headers), receive, send)
        return code, b"".join(parts)

    async def forward(self, scope: Scope, receive: Receive, send: Send, path: str, query: bytes | None = None) -> None:
        """Let the API answer a request of the browser, as if it were for this path."""
        headers = [pair for pair in scope["headers"] if pair[0] in _PASSED_ON]
        asked = scope["query_string"] if query is None else query
        await self.api(self._scope(scope["method"], path, asked, headers), receive, send)

    def _scope(self, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]]) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "root_path": "",
            "query_string": query,
            "headers": [(b"authorization", self.header), (b"host", b"console"), *headers],
            "client": None,
            ORIGIN: self.origin,
            "server": None,
        }


def error_of(status: dict[str, Any]) -> IsthmusError:
    """The error that a Status stands for."""
    found = _ERRORS.get(status.get("reason", ""), IsthmusError)
    causes = (status.get("details") or {}).get("causes") or ()
    reported = tuple(Cause(c.get("field", ""), c.get("message", ""), c.get("reason", "")) for c in causes)
    return found(
        str(status.get("message") or "something went wrong inside the server; its log says what"), causes=reported
    )


def in_tenant(namespace: str, plural: str, *rest: str) -> str:
    """The path of something that belongs to a tenant."""
    return "/".join((GROUP, "namespaces", namespace, plural, *rest))
