"""Requests to an API server.

A question that failed raises; only an answer is ever an answer. So many requests are under way at once, the others
queue here and not at the server.

**Throttling.** An answer 429 means that nothing was done, whatever was asked; 503 with `Retry-After` says so of a
question. Both are asked again when the server says, a little later by chance so that many clients do not come back
together, and for no longer than one waits for an answer at all. A write that was answered 503 may have been done by
some proxy's other end: it is not repeated, its error carries the time to wait. Nothing else is repeated, except a
question whose kept connection the server had just closed.

When a connection breaks, the error says whether the request can have reached the server.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self

import httpx
import orjson

from isthmus.errors import Invalid, NotFound, Unavailable
from isthmus.metrics import KUBERNETES_REQUESTS

from .answers import SITE, Meanings, error_of, event_error
from .connecting import Handshake
from .kubeconfigs import ClusterAccess

log = logging.getLogger(__name__)

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
PAGE = 500
AT_ONCE = 32
"""Requests under way at once. API servers take a few hundred from all clients together."""
Params = Mapping[str, str | int]
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CLOSED = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_SHORTEST_PAUSE, _SPREAD = 0.1, 0.25


class KubernetesClient:
    """Speaks to one API server."""

    def __init__(
        self, access: ClusterAccess, seconds: float = 30.0, *, meanings: Meanings = SITE, at_once: int = AT_ONCE
    ) -> None:
        self.access, self.meanings = access, meanings
        self._seconds = seconds
        self._slots = asyncio.Semaphore(at_once)
        self.http = httpx.AsyncClient(
            base_url=access.url,
            verify=access.context,
            auth=access.auth,
            timeout=seconds,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=at_once),
            trust_env=False,
            headers={"User-Agent": "isthmus", "Accept": "application/json"},
        )
        self.asked: Counter[str] = Counter()
        """What was asked so far, and how often, streams and programs in pods too: `POST jobs.batch`, `GET pods/log`."""

    def count(self, method: str, path: str) -> None:
        """Note a request."""
        what = f"{method} {_resource(path)}"
        self.asked[what] += 1
        KUBERNETES_REQUESTS.labels(what).inc()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections."""
        await self.http.aclose()

    # Questions

    async def get(self, path: str, what: str = "", params: Params | None = None) -> Any:
        """One object, or a list in one piece."""
        try:
            try:
                answer = await self._exchange("GET", path, params)
            except _CLOSED:
                answer = await self._exchange("GET", path, params)
        except (httpx.HTTPError, OSError) as error:
            raise self._away(error, "try again") from error
        return self._content(answer, what or path)

    async def list_all(self, path: str, selector: str, fields: str = "") -> tuple[list[Any], str]:
        """All objects, page by page, and the version that the list is of."""
        items: list[Any] = []
        params: dict[str, str | int] = {"labelSelector": selector, "fieldSelector": fields, "limit": PAGE}
        while True:
            page = await self.get(path, "", params)
            items += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"]["resourceVersion"]
            params["continue"] = token

    async def watch(self, path: str, selector: str, version: str, seconds: int) -> AsyncGenerator[tuple[str, Any]]:
        """What changes after a version; ends after so many seconds. Raises Expired, Unavailable."""
        params: Params = {"labelSelector": selector, "resourceVersion": version, "timeoutSeconds": seconds}
        async with aclosing(self.events(path, params, silence=seconds * 4 / 3)) as events:
            async for event in events:
                yield event

    async def events(self, path: str, params: Params, *, silence: float) -> AsyncGenerator[tuple[str, Any]]:
        """What a watch reports: what happened, and the object. Raises Expired, Unavailable."""
        asked = {**params, "watch": "true", "allowWatchBookmarks": "true"}
        async with self.stream(path, asked, silence=silence) as blocks:
            async for line in _lines(blocks):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise event_error(event["object"], "the watch ended", self.meanings)
                yield event["type"], event["object"]

    @asynccontextmanager
    async def stream(self, path: str, params: Params, *, silence: float | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer as they come; `silence` is how long none may come."""
        answer: httpx.Response | None = None
        try:
            answer = await self._exchange("GET", path, params, stream=httpx.Timeout(self._seconds, read=silence))
            if not answer.is_success:
                raise self._error(answer, await answer.aread(), path)
            yield answer.aiter_bytes()
        except (httpx.HTTPError, OSError) as error:
            raise self._away(error, f"its answer to {path} is not whole") from error
        finally:
            if answer is not None:
                await answer.aclose()

    # Changes

    async def create(self, path: str, obj: Any, what: str = "") -> Any:
        """Make an object; raises AlreadyExists where the name is taken."""
        return await self.send("POST", path, what, obj)

    async def patch(self, path: str, change: Any, what: str = "") -> Any:
        """Merge a change into an object."""
        return await self.send("PATCH", path, what, change, content=MERGE)

    async def delete(self, path: str, **options: Any) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            await self.send("DELETE", path, "", options)
        except NotFound:
            return

    async def send(
        self, method: str, path: str, what: str = "", body: Any = None, params: Params | None = None, content: str = ""
    ) -> Any:
        """Write."""
        try:
            data = orjson.dumps(body) if body is not None else b""
        except TypeError as error:  # not JSON: nested too deep, a number beyond 64 bits, a broken character
            raise Invalid(f"{what} cannot be written as JSON: {error}") from None
        try:
            answer = await self._exchange(method, path, params, data, content or "application/json")
        except _UNSENT as error:
            raise self._away(error, "nothing was changed") from error
        except (httpx.HTTPError, OSError) as error:
            then = "it is not known whether the change was made; read the object before trying again"
            raise self._away(error, then) from error
        return self._content(answer, what or path)

    # Exchanges

    async def _exchange(
        self,
        method: str,
        path: str,
        params: Params | None,
        data: bytes | None = None,
        content: str = "",
        *,
        stream: httpx.Timeout | None = None,
    ) -> httpx.Response:
        """One request with its answer, asked again for as long as the server says that it has no time."""
        if self.http.is_closed:
            raise self.meanings.unavailable("the connection to the API server is closed; nothing was changed")
        deadline = time.monotonic() + self._seconds
        headers = {"Content-Type": content} if content else {}
        timeout = stream or httpx.Timeout(self._seconds)
        while True:
            request = self.http.build_request(
                method, path, params=params, content=data, headers=headers, timeout=timeout,
                extensions={"trace": Handshake()},
            )  # fmt: skip
            async with self._slots:
                self.count("WATCH" if params and "watch" in params else method, path)
                answer = await self.http.send(request, stream=stream is not None)
            pause = _pause(answer, method)
            if pause is None or time.monotonic() + pause > deadline:
                return answer
            await answer.aclose()
            log.info("kubernetes.throttled code=%d pause=%.1fs path=%s", answer.status_code, pause, path)
            await asyncio.sleep(pause)

    def _content(self, answer: httpx.Response, what: str) -> Any:
        if not answer.is_success:
            raise self._error(answer, answer.content, what)
        try:
            return orjson.loads(answer.content) if answer.content else {}
        except ValueError:
            raise self.meanings.unavailable(f"{what}: the API server's answer is not JSON") from None

    def _error(self, answer: httpx.Response, content: bytes, what: str) -> Exception:
        return error_of(answer.status_code, content, what, self.meanings, _reported(answer))

    def _away(self, error: Exception, then: str) -> Unavailable:
        said = str(error) or type(error).__name__
        return self.meanings.unavailable(f"the API server at {self.access.url} does not answer ({said}); {then}")


async def _lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def _pause(answer: httpx.Response, method: str) -> float | None:
    """How long to wait before the same is asked again; None if it is not."""
    reported = _reported(answer)
    if answer.status_code == 429:
        reported = 1.0 if reported is None else reported
    elif answer.status_code != 503 or method != "GET":
        return None
    return None if reported is None else max(_SHORTEST_PAUSE, reported) * random.uniform(1.0, 1.0 + _SPREAD)  # noqa: S311


def _reported(answer: httpx.Response) -> float | None:
    """`Retry-After` in seconds; a date is not what an API server writes."""
    try:
        return float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return None


def _resource(path: str) -> str:
    """Which sort of thing a path is about, without names: `pods/log`, `jobs.batch`."""
    kind, *rest = path.strip("/").split("/")
    group = rest.pop(0) if kind == "apis" and rest else ""
    rest = rest[1:] if kind in ("api", "apis") else [kind]  # without the version; health and version have none
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    named = [f"{rest[0]}.{group}" if group else rest[0]] if rest else [group]
    return "/".join([*named, *rest[2:3]])
