"""The console as an application: it stands before the API and takes what begins with /console.

Everything else goes to the API untouched. One function looks up the handler, gives it a visit, and turns what is
raised into a page: who is not signed in is sent to the form, and comes back to where they wanted to go.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isthmus.api.auditing import note_page
from isthmus.api.responses import error_response, status_of
from isthmus.errors import IsthmusError, Unauthenticated

from .live import Live
from .pages import assets, experiments, job, jobs, kinds, overview, signing, sites, streams, submit, tenants, uploads
from .rendering import HEADERS, page, render
from .session_records import SessionRecords
from .sessions import Sessions
from .visits import BASE, Parts, Visit

if TYPE_CHECKING:
    from isthmus.api.context import Context

logger = logging.getLogger(__name__)
Handler = Callable[[Visit], Awaitable[Response]]
_TITLES = {
    403: "Not allowed",
    404: "Page not found",
    405: "Not possible here",
    409: "Changed in the meantime",
    413: "Too large",
    422: "Not possible",
    503: "Not available right now",
}
_OPEN = f"{BASE}/static/"
"""Open to everybody, so that nobody needs to be looked up."""


class Console:
    """Pages at /console, the API everywhere else. `close` ends what follows the store."""

    def __init__(self, context: Context, api: ASGIApp, key: str) -> None:
        self._parts = Parts(context, api, Sessions(key), SessionRecords(context.store), Live(context.store))
        found = [
            one
            for part in (assets, signing, overview, jobs, job, experiments, submit, uploads, sites, tenants, streams)
            for one in part.PAGES
        ]
        self.router = Router(
            [Route(BASE + path, self._serve(handler), methods=[method]) for method, path, handler in found],
            redirect_slashes=False,
            default=Router(
                [Route(BASE + path, self._serve(handler), methods=[method]) for method, path, handler in kinds.PAGES],
                redirect_slashes=False,
                default=_nothing_here,
            ),
        )

    def link(self, token: str) -> str:
        """The path of a link that signs the token's owner in, once and soon."""
        return signing.link(self._parts.sessions, token)

    async def close(self) -> None:
        """Stop following the store."""
        await self._parts.live.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI calls it."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == "/" or path == BASE or path.startswith(f"{BASE}/")):
            await self._parts.api(scope, receive, send)
        elif path in ("/", BASE):
            await self._root(scope, receive, send)
        else:
            await self._page(scope, receive, send)

    async def _root(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A browser is led to the console; a program gets the API's answer."""
        wants = Request(scope).headers.get("accept", "")
        if scope["path"] == BASE or "text/html" in wants:
            await RedirectResponse(f"{BASE}/", 307, HEADERS)(scope, receive, send)
        else:
            await self._parts.api(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            scope["app"] = self  # makes the router raise for a wrong method
            await self.router(scope, receive, noting)
        except ClientDisconnect:
            logger.debug("browser left before its request was complete")
        except Exception as error:
            if begun:
                raise
            visit = Visit(self._parts, Request(scope), self._parts.live.mark)
            try:
                visit = await visit.checked()
            except IsthmusError:
                visit = replace(visit, over=True)  # nobody is shown as signed in whose session cannot be looked up
            await self._answer(visit, error)(scope, receive, send)

    def _serve(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            # The mark of before it is read: what changes during the reading is reported afterwards.
            visit = Visit(self._parts, request, self._parts.live.mark)
            if request.url.path.startswith(_OPEN):
                return await handler(visit)
            visit = await visit.checked()
            if request.method == "GET" and (caller := visit.known_caller) is not None:
                note_page(self._parts.context, request.scope, caller)
            return await handler(visit)

        return serve

    def _answer(self, visit: Visit, error: Exception) -> Response:
        """What the browser shows when something went wrong; a program gets a Status, as from the API."""
        if "text/html" not in visit.request.headers.get("accept", "text/html"):
            return error_response(error)
        if isinstance(error, Unauthenticated):
            return _to_the_form(visit)
        if not isinstance(error, IsthmusError | HTTPException):
            logger.error("page failed", exc_info=error)
        status = status_of(error)
        code = int(status["code"])
        title = _TITLES.get(code, "Something went wrong")
        section = visit.request.url.path.removeprefix(f"{BASE}/").partition("/")[0]
        among = section if code == 404 and kinds.is_listed(section) else ""
        values = {"title": title, "message": status.get("message", ""), "code": code, "among": among}
        try:
            return render(visit, "error.html", code, **values)
        except Unauthenticated:
            return page("error.html", code, theme=visit.theme, caller=None, **values)


def _to_the_form(visit: Visit) -> Response:
    request = visit.request
    if request.method not in ("GET", "HEAD") or request.headers.get("x-console") == "live":
        return page("error.html", 401, theme=visit.theme, caller=None, title="You are signed out", code=401,
                    message="Your session or its token has expired. Sign in again.")  # fmt: skip
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    query: Mapping[str, str] = {} if wanted == f"{BASE}/" else {"next": wanted}
    answer = RedirectResponse(f"{BASE}/sign-in" + (f"?{urlencode(query)}" if query else ""), 303, HEADERS)
    if visit.request.cookies:
        visit.drop_cookie(answer)
    return answer


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    raise kinds.no_such_page()
