"""Health, version and metrics: what watches over the server itself."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version as installed_version

import prometheus_client
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from isthmus.errors import Unavailable
from isthmus.identity.callers import at_least
from isthmus.resources.tenants import Role
from isthmus.store.base import BoundedStore

from .context import Context
from .requests import caller_of, forbidden
from .responses import json_response

KUBERNETES = "1.30.0"
"""The Kubernetes whose conventions are followed; kubectl compares it with its own version."""
_READY_SECONDS = 5.0


def routes(context: Context) -> list[BaseRoute]:
    """Open to everybody, but for the metrics, which need a platform role."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_: Request) -> Response:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await context.store.version()
        except TimeoutError:
            raise Unavailable("the store does not answer", retry_after=1) from None
        if isinstance(context.store, BoundedStore) and (problem := context.store.problem()):
            raise Unavailable(problem, retry_after=5)
        return PlainTextResponse("ok")

    async def version(_: Request) -> Response:
        return json_response(version_document())

    async def metrics(request: Request) -> Response:
        caller = await caller_of(request, context)
        if not at_least(caller.platform, Role.VIEWER):
            raise forbidden(caller, "get", "metrics", "")
        return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/livez", alive, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/version", version, methods=["GET"]),
        Route("/version/", version, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


def version_document() -> dict[str, str]:
    """Which Kubernetes this resembles, and which Isthmus it is."""
    major, minor, _ = KUBERNETES.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES}+isthmus-{installed_version('isthmus')}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
