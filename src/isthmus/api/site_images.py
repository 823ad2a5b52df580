"""Container images that sites keep: a tenant sees and removes those that its own jobs used, an administrator all.

Images are not objects: a site fetches and forgets them by itself, and each answer is what is there now. To have one
fetched ahead of time, run a job in it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from isthmus._kit.clock import timestamp
from isthmus.api.requests import caller_of, require
from isthmus.api.responses import json_response
from isthmus.errors import Conflict, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from isthmus.engines.base import SiteImage

    from .context import Context, SiteImages

EVERYWHERE = "/apis/isthmus.dev/v1/images"
BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}/images"


def routes(context: Context) -> list[BaseRoute]:
    """Where images are listed and removed."""

    async def listing(request: Request) -> Response:
        tenant = await _tenant(request, "list")
        found, silent = await _offered(context).list()
        kept = [(site, image) for site, image in found if tenant is None or tenant in image.tenants]
        items = [_as_json(site, image, tenant) for site, image in kept]
        head = {"apiVersion": "isthmus.dev/v1", "kind": "ImageList"}
        return json_response({**head, "items": items, "unavailable": sorted(silent)})

    async def remove(request: Request) -> Response:
        tenant = await _tenant(request, "delete")
        site, digest = request.query_params.get("site", ""), request.query_params.get("digest", "")
        if not site or not digest:
            raise Invalid("say which image: ?site=NAME&digest=sha256:…")
        found, _ = await _offered(context).list()
        wanted = [
            image
            for where, image in found
            if where == site and image.digest == digest and (tenant is None or tenant in image.tenants)
        ]
        if not wanted:
            raise NotFound(f"site {site[:80]!r} keeps no image {digest[:80]!r} that jobs here used")
        for image in wanted:
            if not await _offered(context).remove(site, image, tenant):
                raise Conflict(f"image {image.name} is in use at site {site}; wait until the jobs in it have ended")
        return json_response({"apiVersion": "v1", "kind": "Status", "status": "Success", "code": 200})

    async def _tenant(request: Request, verb: str) -> str | None:
        """Whose images are meant; None: all, which only the platform's own people may ask for."""
        caller = await caller_of(request, context)
        namespace: str = request.path_params.get("namespace", "")
        require(caller, verb, "jobs", namespace)
        return namespace or None

    return [
        Route(path, handler, methods=[method])
        for path in (EVERYWHERE, BASE)
        for handler, method in ((listing, "GET"), (remove, "DELETE"))
    ]


def _offered(context: Context) -> SiteImages:
    if context.images is None:
        raise Unavailable("this server does not look after images; ask another replica")
    return context.images


def _as_json(site: str, image: SiteImage, tenant: str | None) -> dict[str, Any]:
    shown = {
        "site": site,
        "name": image.name,
        "digest": image.digest,
        "bytes": image.bytes,
        "lastUsed": timestamp(datetime.fromtimestamp(image.used_at, UTC)),
        "private": image.private,
        "inUse": image.in_use,
    }
    return shown if tenant is not None else {**shown, "tenants": sorted(image.tenants)}
