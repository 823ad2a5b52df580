"""Serving the documents: made once, when first asked for; sent as bytes with an entity tag."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from isthmus.api.resources.targets import all_views
from isthmus.api.responses import JSON
from isthmus.resources.kinds import derived

from . import protobuf, version2, version3, whole

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context

_PROTOBUF = "application/com.github.proto-openapi.spec.v2"


@dataclass(frozen=True, slots=True)
class Document:
    """Bytes, what they are, and what distinguishes them from any others."""

    data: bytes
    media_type: str
    tag: str


def _document(data: bytes, media_type: str = JSON) -> Document:
    return Document(data, media_type, hashlib.sha256(data).hexdigest().upper())


@derived
def whole_document() -> Document:
    """Everything, for people and their tools."""
    return _document(orjson.dumps(whole.document()))


@derived
def swagger(binary: bool) -> Document:
    """Version 2, as JSON or as protobuf."""
    document = version2.document()
    return _document(protobuf.encode(document), protobuf.CONTENT_TYPE) if binary else _document(orjson.dumps(document))


@derived
def of_group(group: str, version: str) -> Document:
    """Version 3 of one group and version."""
    return _document(orjson.dumps(version3.document(group, version)))


@derived
def index() -> Document:
    """Where the documents of version 3 are."""
    paths = {}
    for group, version in all_views():
        path = _path(group, version)
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={of_group(group, version).tag}"}
    return _document(orjson.dumps({"paths": paths}))


def routes(context: Context) -> list[BaseRoute]:
    """Where descriptions are served; without a token, because they say nothing of anybody."""
    del context
    found: dict[str, Callable[[Request], Document]] = {
        "/openapi.json": lambda _: whole_document(),
        "/openapi/v2": lambda request: swagger(_wants_protobuf(request)),
        "/openapi/v3": lambda _: index(),
    }
    for group, version in all_views():
        found[f"/openapi/v3/{_path(group, version)}"] = _of_group(group, version)
    return [Route(path, _serve(make), methods=["GET"]) for path, make in found.items()]


def _of_group(group: str, version: str) -> Callable[[Any], Document]:
    return lambda _: of_group(group, version)


def _serve(make: Callable[[Any], Document]) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        _check_accepted(request)
        document = await asyncio.to_thread(make, request)
        headers = {"ETag": f'"{document.tag}"', "Vary": "Accept", "Cache-Control": "no-cache"}
        if request.query_params.get("hash") == document.tag:
            # The address names the very bytes, so that they may be kept for ever.
            headers["Cache-Control"] = "public, max-age=31536000, immutable"
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(document.data, headers=headers, media_type=document.media_type)

    return serve


def _check_accepted(request: Request) -> None:
    accepted = request.headers.get("accept", "*/*").lower()
    if not any(media in accepted for media in (JSON, "*/*", "application/*", _PROTOBUF)):
        raise HTTPException(406, "descriptions are offered as application/json")
    if _PROTOBUF in accepted and JSON not in accepted and "*" not in accepted and request.url.path != "/openapi/v2":
        raise HTTPException(406, "only version 2 is offered as protobuf; this one is application/json")


def _wants_protobuf(request: Request) -> bool:
    """kubectl names JSON first or second; whoever names protobuf can read it."""
    return _PROTOBUF in request.headers.get("accept", "")


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"
