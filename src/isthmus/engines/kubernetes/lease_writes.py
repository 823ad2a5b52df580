"""Many small writes to an API server, for heartbeats: twenty in a second, for ever, at little cost.

All requests of a bundle are sent in one go. Go's server answers in order, and a renewal sent twice does no harm.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from isthmus._kit.http import HttpClient, NoAnswer
from isthmus.errors import SiteUnavailable

Headers = Callable[[], Awaitable[Mapping[str, str]]]
MOST = 50
"""Requests in one bundle: their answers fit into the buffers on the way."""


class LeaseAnswer(NamedTuple):
    """What was said to one request."""

    status: int
    body: Any


class LeaseWrites:
    """Writes whole objects."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, headers: Headers, seconds: float) -> None:
        self._http = HttpClient(url, connections=1, seconds=seconds, tls=tls)
        self._headers = headers

    async def put_all(self, objects: Sequence[tuple[str, Any]]) -> list[LeaseAnswer]:
        """Write objects to their paths; an answer for each, in order. Raises SiteUnavailable: nothing is known."""
        headers = {"User-Agent": "isthmus", "Content-Type": "application/json", **await self._headers()}
        questions = [(path, orjson.dumps(obj)) for path, obj in objects]
        found: list[LeaseAnswer] = []
        try:
            for start in range(0, len(questions), MOST):
                answers = await self._http.ask_all("PUT", headers, questions[start : start + MOST])
                found += [LeaseAnswer(answer.status, _content(answer.status, answer.body)) for answer in answers]
        except NoAnswer as error:
            raise SiteUnavailable(f"the API server does not answer heartbeats: {error}") from error
        return found

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.close()


def _content(status: int, body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if status >= 300:  # a proxy's page, say: the status says enough
            return None
        raise SiteUnavailable("the API server does not answer heartbeats: its answer is not JSON") from None
