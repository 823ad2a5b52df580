"""Answers that are made while they are sent, and the encoding of server-sent events.

A stream holds a `lifeline`: it ends at once when the client leaves, when its token ends or when the server stops.
Whether that early end may look like a proper one is the stream's choice: a follower asks again anyway, an archive
that is cut must be seen to be broken.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from .requests import lifeline

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from isthmus.identity.callers import Caller

    from .context import Context

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"
KEEP_ALIVE_SECONDS = 15.0


class StreamedAnswer(Response):
    """An answer in parts. `whole`: an early end is shown by breaking the connection off."""

    def __init__(
        self,
        context: Context,
        caller: Caller,
        parts: AsyncGenerator[bytes, None],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._context = context
        self._caller = caller
        self._parts = parts
        self._whole = whole
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts, as they come and as fast as the client takes them."""
        complete = False
        async with lifeline(scope, receive, self._context, self._caller), aclosing(self._parts) as parts:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            complete = True
        if complete or not self._whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(data: Any, name: str = "", id_: str = "") -> bytes:
    """One server-sent event; the data is JSON and therefore one line."""
    head = (f"id: {id_}\n" if id_ else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + orjson.dumps(data) + b"\n\n"


class TextPieces:
    """Bytes that come in pieces, as text; a character is never cut, and what is not UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The text that is complete now."""
        return self._decoder.decode(data)

    @property
    def held(self) -> int:
        """How many bytes wait for the rest of their character."""
        return len(self._decoder.getstate()[0])

    def flush(self) -> str:
        """What waited in vain; the next byte begins anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
