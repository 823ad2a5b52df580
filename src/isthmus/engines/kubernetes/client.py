"""A thin client of an API server: requests with their errors told apart, lists, watches and streams.

A question that failed raises `SiteUnavailable`; only an answer is ever an answer. Every request is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from isthmus.errors import AlreadyExists, Conflict, EngineRefused, Expired, IsthmusError, NotFound, SiteUnavailable

from .kubeconfigs import Access

MERGE = "application/merge-patch+json"
PAGE = 500


class KubernetesClient:
    """Speaks to one API server."""

    def __init__(self, access: Access, seconds: float) -> None:
        self.access = access
        self._seconds = seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
        self._http = httpx.AsyncClient(
            base_url=access.url, verify=access.context, timeout=seconds, limits=limits, trust_env=False
        )
        self.asked: Counter[str] = Counter()
        """What was asked so far, and how often, streams and programs in pods included: `POST pods`, `GET pods/log`."""

    def count(self, method: str, path: str) -> None:
        """Note a request."""
        parts = path.split("/namespaces/")[-1].split("/")[1:] if "/namespaces/" in path else path.split("/")[-1:]
        self.asked[f"{method} {'/'.join(parts[::2])}"] += 1

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.aclose()

    async def get(self, path: str, **params: str | int) -> Any:
        """One object, or a list in one piece."""
        return await self._ask("GET", path, params=params)

    async def create(self, path: str, obj: Any) -> Any:
        """Make an object; raises AlreadyExists where the name is taken."""
        return await self._ask("POST", path, content=orjson.dumps(obj))

    async def patch(self, path: str, change: Any) -> Any:
        """Merge a change into an object."""
        return await self._ask("PATCH", path, content=orjson.dumps(change), kind=MERGE)

    async def delete(self, path: str, **options: Any) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            await self._ask("DELETE", path, content=orjson.dumps(options))
        except NotFound:
            return

    async def list_all(self, path: str, selector: str, fields: str = "") -> tuple[list[Any], str]:
        """All objects, page by page, and the version that the list is of."""
        items: list[Any] = []
        params: dict[str, str | int] = {"labelSelector": selector, "fieldSelector": fields, "limit": PAGE}
        while True:
            page = await self.get(path, **params)
            items += page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return items, page["metadata"]["resourceVersion"]
            params["continue"] = token

    async def watch(self, path: str, selector: str, version: str, seconds: int) -> AsyncIterator[tuple[str, Any]]:
        """What changes after a version; ends after so many seconds. Raises Expired, SiteUnavailable."""
        params = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        async with self.stream(path, params, silence=seconds * 4 / 3) as answer:
            async for line in _lines(answer):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise _error(int(status.get("code", 500)), str(status.get("message", "")), None, path)
                yield event["type"], event["object"]

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, silence: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of an answer as they come; `silence` is how long none may come."""
        self.count("WATCH" if "watch" in params else "GET", path)
        timeout = httpx.Timeout(self._seconds, read=silence)
        try:
            async with self._http.stream(
                "GET", path, params=params, headers=self.access.headers(), timeout=timeout
            ) as answer:
                if answer.is_error:
                    raise _refusal(answer, await answer.aread(), path)
                yield answer.aiter_bytes()
        except (httpx.HTTPError, OSError) as error:
            raise SiteUnavailable(f"the API server did not finish its answer to {path}: {_said(error)}") from error

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        kind: str = "application/json",
    ) -> Any:
        self.count(method, path)
        headers = self.access.headers() | ({"Content-Type": kind} if content is not None else {})
        try:
            answer = await self._http.request(method, path, params=params, content=content, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise SiteUnavailable(f"the API server does not answer: {_said(error)}") from error
        if answer.is_error:
            raise _refusal(answer, answer.content, path)
        try:
            return orjson.loads(answer.content)
        except ValueError:
            raise SiteUnavailable(f"the API server's answer to {path} is not JSON") from None


async def _lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if line:
                yield line


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _refusal(answer: httpx.Response, content: bytes, path: str) -> IsthmusError:
    try:
        message = str(orjson.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        message = content[:300].decode("utf-8", "replace")
    return _error(answer.status_code, message, answer.headers.get("Retry-After"), path)


def _error(code: int, message: str, retry_after: str | None, path: str) -> IsthmusError:
    """Each answer in our own words. What an administrator must mend never fails a job: it waits."""
    match code:
        case 404:
            return NotFound(message)
        case 409 if "exists" in message:
            return AlreadyExists(message)
        case 409:
            return Conflict(message)
        case 410:
            return Expired(message)
        case 401:
            return SiteUnavailable("the API server does not accept our credentials; renew the site's kubeconfig")
        case 403 if "quota" in message:
            return SiteUnavailable(f"the cluster has no room just now: {message}")
        case 403:
            return SiteUnavailable(f"the cluster does not allow Isthmus to do this: {message}")
        case 400 | 413 | 415 | 422:
            return EngineRefused(f"the cluster refused it: {message}")
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    return SiteUnavailable(f"the API server answered {code} to {path}: {message}", retry_after=wait)
