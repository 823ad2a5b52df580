"""The ASGI application: resources first and fast, everything else by the router, every error in one form.

There is no middleware: one function looks at the path, hands the request on, and turns what is raised into a
Status. An error after the answer has begun cannot be reported any more; it breaks the connection, as it should.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send

from . import audit_routes, enrolling, files, health, openapi, sign_in_routes, site_images, usage_routes
from .auditing import is_change, note_request
from .context import Context
from .resources import discovery, reviews
from .resources.dispatching import dispatch
from .resources.targets import Target, find_target
from .responses import error_response
from .runs import logs, outputs, plans, run_sockets, telemetry, working_files

logger = logging.getLogger(__name__)


class Api:
    """The application. `close` ends all streams; a server calls it before it waits for open requests."""

    def __init__(self, context: Context, routes: Sequence[BaseRoute]) -> None:
        self.context = context
        self._router = Router(routes, redirect_slashes=False, default=_no_such_path)

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Everything that is not a resource."""
        return self._router.routes

    def close(self) -> None:
        """End every watch and every followed log."""
        self.context.lifelines.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI calls it."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._websocket(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        for part in (enrolling, run_sockets):
            if (serve := part.socket(self.context, scope["path"])) is not None:
                await serve(scope, receive, send)
                return
        await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = find_target(scope["path"])
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            if not begun:
                begun = True
                note_request(self.context, scope, target, message.get("status", 500))
            await send(message)

        try:
            if self.context.audit is not None and scope["method"] != "DELETE" and is_change(scope):
                self.context.audit.check()  # deleting makes room
            if "\0" in scope["path"]:  # no name has one, and databases take none in text
                raise HTTPException(404, "the server could not find the requested resource")
            if target is not None:
                await dispatch(self.context, target, scope, receive, noting)
            else:
                scope["app"] = self  # makes the router raise for a wrong method instead of answering in plain text
                await self._router(scope, receive, noting)
        except ClientDisconnect:
            logger.debug("client left before its request was complete")
        except Exception as error:
            if begun:
                raise
            await error_response(error, _what(target))(scope, receive, noting)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                self.close()
                return


def create_app(context: Context, extra_routes: Sequence[BaseRoute] = ()) -> Api:
    """The whole API over the given platform."""
    routes = [
        *health.routes(context),
        *discovery.routes(context),
        *reviews.routes(context),
        *logs.routes(context),
        *telemetry.routes(context),
        *files.routes(context),
        *outputs.routes(context),
        *working_files.routes(context),
        *plans.routes(context),
        *site_images.routes(context),
        *enrolling.routes(context),
        *audit_routes.routes(context),
        *usage_routes.routes(context),
        *sign_in_routes.routes(context),
        *openapi.routes(context),
        *extra_routes,
    ]
    return Api(context, routes)


def _what(target: Target | None) -> dict[str, str] | None:
    return target.what() if target is not None else None


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404, "the server could not find the requested resource")
