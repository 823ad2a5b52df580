"""Files of a tenant: contents by digest, one by one or many in a pack, and the trees that name them.

Sending a folder is: ask which digests are missing, send those as packs, store the tree, name its digest in a job.
Everything that arrives is checked against its digest, so that the same bytes may be sent any number of times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, MalformedRangeHeader, RangeNotSatisfiable, Response
from starlette.routing import Route

from isthmus._kit.numbers import whole
from isthmus.errors import Forbidden, Invalid, NotFound, TooLarge
from isthmus.resources.frame.meta import Model
from isthmus.resources.frame.validation import parse
from isthmus.resources.jobs import Digest
from isthmus.resources.work.trees import MAX_FILES, Tree
from isthmus.storage.base import Blobs
from isthmus.storage.packs import unpack

from .requests import caller_of, read_body, require
from .responses import json_response

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from .context import Context

BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}/files"
MAX_DIGESTS = 10_000
MAX_TREE = 64 * 2**20
MAX_RANGES = 16
"""Parts of a file in one answer; who asks for more gets the whole."""
_SHOWN = 10


class DigestsAsked(Model):
    """Contents that somebody is about to send."""

    digests: list[Digest] = Field(max_length=MAX_DIGESTS)


def routes(context: Context) -> list[BaseRoute]:
    """Where files are served."""
    files = _Files(context)
    return [
        Route(f"{BASE}/missing", files.missing, methods=["POST"]),
        Route(f"{BASE}/pack", files.pack, methods=["POST"]),
        Route(f"{BASE}/tree", files.put_tree, methods=["PUT"]),
        Route(f"{BASE}/{{digest}}", files.one, methods=["GET", "HEAD", "PUT"]),
    ]


class _Files:
    """The handlers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._blobs = context.blobs

    async def missing(self, request: Request) -> Response:
        """Which of some digests are not here."""
        namespace = await self._allowed(request, "get")
        body = await read_body(request, MAX_DIGESTS * 100)
        asked = parse(DigestsAsked, await asyncio.to_thread(_decode, body), "the list of digests")
        missing = await self._blobs.missing(namespace, dict.fromkeys(asked.digests))
        return json_response({"missing": missing})

    async def pack(self, request: Request) -> Response:
        """Keep many contents."""
        namespace = await self._allowed(request, "create")
        stored = await unpack(self._blobs, namespace, self._chunks(request), self._context.limits.file_bytes)
        return json_response({"stored": stored.count, "bytes": stored.bytes})

    async def one(self, request: Request) -> Response:
        """One content, to or fro."""
        return await (self.put(request) if request.method == "PUT" else self.get(request))

    async def put(self, request: Request) -> Response:
        """Keep one content."""
        namespace, digest = await self._allowed(request, "create"), request.path_params["digest"]
        await self._blobs.missing(namespace, [digest])  # refuses what is no digest before anything is sent
        size = await self._blobs.put(namespace, digest, self._chunks(request))
        return json_response({"stored": 1, "bytes": size})

    async def put_tree(self, request: Request) -> Response:
        """Keep a tree whose contents are all here."""
        namespace = await self._allowed(request, "create")
        body = await read_body(request, MAX_TREE)
        tree = await asyncio.to_thread(_read_tree, body)
        await asyncio.to_thread(_check_contents, self._blobs, namespace, tree)
        digest = await self._blobs.put_tree(namespace, tree)
        return json_response({"tree": digest, "count": len(tree.files), "bytes": tree.total_bytes})

    async def get(self, request: Request) -> Response:
        """One content."""
        namespace, digest = await self._allowed(request, "get"), request.path_params["digest"]
        return send_file(request, self._blobs.path(namespace, digest), digest)

    async def _allowed(self, request: Request, verb: str) -> str:
        namespace: str = request.path_params["namespace"]
        require(await caller_of(request, self._context), verb, "files", namespace)
        tenant = self._context.authenticator.tenant(namespace)
        if tenant is None:
            raise NotFound(f'there is no tenant "{namespace}"')
        if verb != "get" and tenant.terminating:
            raise Forbidden(f'tenant "{namespace}" is being deleted and takes no more files')
        return namespace

    async def _chunks(self, request: Request) -> AsyncIterator[bytes]:
        """The body as it comes, up to the limit."""
        limit = self._context.limits.file_bytes
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HTTPException(415, "compressed bodies are not taken; send it without Content-Encoding")
        declared, seen = request.headers.get("content-length", ""), 0
        if (whole(declared) or 0) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
        async for chunk in _in_time(request.stream(), self._context.limits.body_seconds):
            seen += len(chunk)
            if seen > limit:
                raise TooLarge(f"the body is larger than {limit} bytes")
            yield chunk


async def _in_time(chunks: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """The pieces; raises a 408 when the next one does not come in time."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            reported = f"nothing came for {seconds:.0f} s; send the file again"
            raise HTTPException(408, reported, {"Connection": "close"}) from None
        yield chunk


class DownloadedFile(FileResponse):
    """A file that no browser renders, in ranges where asked; errors leave as Status objects."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        if http_range.count(",") >= MAX_RANGES:
            return []
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []  # a range that cannot be read is no range
        except RangeNotSatisfiable:
            headers = {"Content-Range": f"bytes */{file_size}"}
            raise HTTPException(416, f"the range lies beyond the {file_size} bytes of the file", headers) from None


def attachment(name: str) -> dict[str, str]:
    """The headers of a file that a browser saves and never renders."""
    return {
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }


def send_file(request: Request, path: Path, digest: str, name: str | None = None, media: str | None = None) -> Response:
    """A content as a download. It never changes, so that a client that has it gets 304."""
    headers = {
        "ETag": f'"{digest}"',
        "Cache-Control": "private, max-age=31536000, immutable" if name is None else "private, no-cache",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return DownloadedFile(path, headers=headers, media_type=media or "application/octet-stream", filename=name)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise Invalid("the body is not a JSON object")
    return decoded


def _read_tree(body: bytes) -> Tree:
    # Decoding holds up everybody, whatever thread does it: what cannot be a tree is not decoded.
    if body.count(b"{") + body.count(b"[") > 2 * MAX_FILES or body.count(b",") > 10 * MAX_FILES:
        raise TooLarge(f"the tree has too many parts for {MAX_FILES} files, as many as a tree may have")
    return parse(Tree, _decode(body), "the tree")


def _check_contents(blobs: Blobs, namespace: str, tree: Tree) -> None:
    missing: list[str] = []
    for file in tree.files:
        if file.digest is None:
            continue
        try:
            size = blobs.path(namespace, file.digest).stat().st_size
        except (NotFound, FileNotFoundError):
            missing.append(file.digest)
            continue
        if size != file.size:
            raise Invalid(f"{file.path!r} has {size} bytes, and the tree says {file.size}; make the tree again")
    if missing:
        some = ", ".join(list(dict.fromkeys(missing))[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise Invalid(f"the tree names contents that are not here: {some}{more}; upload them first")
