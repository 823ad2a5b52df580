"""The proxy as an application: it stands before console and API and takes what is for the host of an instance.

Every request and every WebSocket is checked anew: who comes, whether the token, the session and the instance are still
those, and whether she may use it. A stream that goes on is looked at again every few seconds. A browser that has no
pass yet is sent to the console, which knows who signed in, and comes back with a ticket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus.errors import Conflict, IsthmusError, NotFound, Unauthenticated
from isthmus.identity.callers import Caller
from isthmus.resources.frame.states import InstancePhase
from isthmus.resources.instances import Instance, host_label
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import INSTANCE, JOB
from isthmus.store.base import Key, Part

from .entering_rules import may_enter
from .headers import COOKIES, cookie_in, header, instance_of, set_cookie, token_in
from .http_relay import BadAnswer, BrowserLeft, relay
from .passes import PASS_SECONDS, Passes
from .socket_relay import relay_socket

if TYPE_CHECKING:
    from isthmus.api.context import Context

logger = logging.getLogger(__name__)

ENTER = "/.isthmus/enter"
"""The one path of every instance that is ours."""
LOOK_SECONDS = 5.0
"""How often whoever uses a stream is looked at again."""
USE_SECONDS = 60.0
"""How often use is written down."""
GoesOn = Callable[[str], Awaitable[bool]]
"""Whether the session of the console with this word goes on."""


@dataclass(frozen=True, slots=True)
class InstanceHosts:
    """Where instances are found."""

    domain: str
    scheme: str
    port: int
    console: str
    """The address of the console."""

    def url(self, namespace: str, name: str) -> str:
        """The address of an instance."""
        usual = {"http": 80, "https": 443}[self.scheme]
        port = "" if self.port == usual else f":{self.port}"
        return f"{self.scheme}://{host_label(name, namespace)}.{self.domain}{port}/"


class _Refused(Exception):
    """What is answered in place of the program."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


class InstanceProxy:
    """Instances at their hosts, everything else to the application behind."""

    def __init__(
        self, context: Context, hosts: InstanceHosts | None, passes: Passes, goes_on: GoesOn, behind: ASGIApp
    ) -> None:
        self._context, self._hosts, self._passes, self._goes_on = context, hosts, passes, goes_on
        self._behind = behind
        self._noted: dict[str, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, as ASGI calls it."""
        if self._hosts is None or scope["type"] not in ("http", "websocket"):
            await self._behind(scope, receive, send)
            return
        host = (header(scope["headers"], b"host") or b"").decode("latin-1")
        bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if not bare.lower().endswith(f".{self._hosts.domain}"):
            await self._behind(scope, receive, send)
            return
        found = instance_of(host, self._hosts.domain)
        try:
            if found is None:
                raise _Refused(_page(404, "There is no such instance", "isthmus instances lists yours."))
            await self._serve(found, scope, receive, send)
        except _Refused as refused:
            await _refuse(refused.answer, scope, receive, send)
        except BrowserLeft:
            logger.debug("browser left")

    async def _serve(self, found: tuple[str, str], scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == ENTER:
            await (await self._enter(found, scope))(scope, receive, send)
            return
        self._check_origin(scope)
        instance = await self._allowed(found, scope)
        if instance.status.phase is not InstancePhase.READY or instance.status.port is None:
            raise _Refused(_not_ready(instance))
        stream = await self._connect(instance)

        async def used() -> None:
            await self._note_use(instance)

        if scope["type"] == "websocket":
            await self._while_allowed(found, scope, relay_socket(scope, receive, send, stream, used))
            return
        try:
            await self._while_allowed(found, scope, relay(scope, receive, send, stream, used))
        except BadAnswer:
            raise _Refused(_page(502, "The program's answer is not HTTP", "Its log may say why.")) from None

    # Who comes

    def _check_origin(self, scope: Scope) -> None:
        """Pages of other origins, other instances among them, have no business with this one."""
        origin = header(scope["headers"], b"origin")
        host = header(scope["headers"], b"host") or b""
        if origin is not None and origin.partition(b"://")[2].lower() != host.lower():
            raise _Refused(PlainTextResponse("this instance is not for pages of other sites", 403))

    async def _allowed(self, found: tuple[str, str], scope: Scope) -> Instance:
        """The instance, if who comes may use it. Who may not does not learn what exists."""
        token, uid = await self._bearer(scope)
        if token is None:
            raise _Refused(self._to_console(found, scope))
        try:
            caller: Caller = self._context.authenticator.authenticate(token)
        except Unauthenticated:
            raise _Refused(self._to_console(found, scope)) from None
        name, namespace = found
        try:
            instance = await self._find(namespace, name)
        except NotFound:
            raise _Refused(_forbidden()) from None
        if (uid is not None and uid != instance.uid) or not may_enter(caller, instance):
            raise _Refused(_forbidden())
        return instance

    async def _bearer(self, scope: Scope) -> tuple[bytes | None, str | None]:
        """The token of who comes, as the authenticator takes it; and the instance that the pass is for."""
        if (given := token_in(scope["headers"])) is not None:
            return given, None
        for name in COOKIES:
            found = self._passes.read_cookie(cookie_in(scope["headers"], name) or "")
            if found is not None and (not found.word or await self._goes_on(found.word)):
                return found.header, found.instance
        return None, None

    def _to_console(self, found: tuple[str, str], scope: Scope) -> Response:
        """A browser is led to where it can sign in; a program is answered."""
        wants = (header(scope["headers"], b"accept") or b"").decode("latin-1")
        if scope["type"] != "http" or scope["method"] != "GET" or "text/html" not in wants:
            return PlainTextResponse("sign in: open the instance in a browser, or send a token of Isthmus", 401)
        assert self._hosts is not None
        name, namespace = found
        path = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        where = f"/console/open/{quote(namespace, safe='')}/{quote(name, safe='')}"
        return RedirectResponse(f"{self._hosts.console}{where}?{urlencode({'path': path})}", 303)

    async def _enter(self, found: tuple[str, str], scope: Scope) -> Response:
        """Exchange a ticket for the cookie of this host."""
        try:
            query = dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=10))
        except ValueError:  # more fields than that
            query = {}
        ticket = self._passes.use_ticket(query.get("ticket", ""))
        if ticket is None:
            return self._to_console(found, {**scope, "path": "/", "query_string": b""})
        try:
            instance = await self._find(found[1], found[0])
        except NotFound:
            return _forbidden()
        if instance.uid != ticket.instance:
            return _forbidden()
        path = query.get("path", "/")
        inside = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
        answer = RedirectResponse(path if inside else "/", 303, {"Referrer-Policy": "no-referrer"})
        secure = scope["scheme"] == "https"
        name = next(name for name in COOKIES if name.startswith("__Host-") == secure)
        cookie = set_cookie(name, self._passes.cookie(ticket), PASS_SECONDS, secure=secure)
        answer.headers.append("set-cookie", cookie.decode())
        return answer

    async def _while_allowed(self, found: tuple[str, str], scope: Scope, work: Coroutine[Any, Any, None]) -> None:
        """Relay, and look every few seconds whether she may still use it."""
        task = asyncio.ensure_future(work)

        def end() -> None:
            task.cancel()

        with self._context.lifelines.hold(end):
            try:
                while not task.done():
                    await asyncio.wait({task}, timeout=LOOK_SECONDS)
                    if not task.done():
                        await self._allowed(found, scope)
            except _Refused:
                logger.debug("a stream of an instance was ended: it is no longer allowed")
            finally:
                task.cancel()
                await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    # What is reached

    async def _find(self, namespace: str, name: str) -> Instance:
        record = await self._context.store.get(Key(INSTANCE.name, namespace, name))
        return Instance.model_validate(record.obj)

    async def _connect(self, instance: Instance) -> Any:
        assert instance.status.port is not None
        try:
            record = await self._context.store.get(Key(JOB.name, instance.namespace, instance.status.job or ""))
            job = Job.model_validate(record.obj)
            if self._context.visits is None or not _made_of(instance, job):
                raise NotFound("it does not run")
            return await self._context.visits.connect(job, instance.status.port)
        except IsthmusError as error:
            raise _Refused(_page(502, "The program does not answer", error.message, again=True)) from None

    async def _note_use(self, instance: Instance) -> None:
        """Write down, once in a while, that somebody uses it."""
        now = asyncio.get_running_loop().time()
        if now - self._noted.get(instance.uid, -USE_SECONDS) < USE_SECONDS:
            return
        self._noted = {uid: then for uid, then in self._noted.items() if now - then < USE_SECONDS} | {instance.uid: now}
        try:
            record = await self._context.store.get(Key(INSTANCE.name, instance.namespace, instance.name))
            last = record.obj["status"].get("lastUsedAt")
            if record.uid != instance.uid or (last and utcnow() - parse_timestamp(last) < timedelta(seconds=5)):
                return
            status = {**record.obj["status"], "lastUsedAt": timestamp(utcnow())}
            await self._context.store.update(INSTANCE, {**record.obj, "status": status}, Part.STATUS)
        except (Conflict, IsthmusError):  # the next use is written down
            self._noted.pop(instance.uid, None)


def _made_of(instance: Instance, job: Job) -> bool:
    return any(owner.uid == instance.uid for owner in job.metadata.owner_references or ())


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await answer(scope, receive, send)
    elif "websocket.http.response" in (scope.get("extensions") or {}):
        await receive()
        start = {"type": "websocket.http.response.start", "status": answer.status_code, "headers": answer.raw_headers}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": bytes(answer.body)})
    else:
        await receive()
        await send({"type": "websocket.close", "code": 1008})


def _forbidden() -> Response:
    return _page(403, "This is not yours", "Ask its owner to share it: isthmus instance share NAME --with USER.")


def _not_ready(instance: Instance) -> Response:
    phase = instance.status.phase
    starting = phase in (InstancePhase.PENDING, InstancePhase.STARTING)
    more = instance.status.message or f"It is {phase.value}."
    if not starting:
        more += f" Start it: isthmus instance start {instance.name}."
    title = "The instance is starting" if starting else "The instance does not run"
    return _page(503, title, more, again=starting)


def _page(code: int, title: str, text: str, *, again: bool = False) -> Response:
    """A short page of ours; one that may be something else soon asks again by itself."""
    refresh = '<meta http-equiv="refresh" content="2">' if again else ""
    content = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>{refresh}'
        f'<body style="font-family:sans-serif;margin:4rem"><h1>{escape(title)}</h1><p>{escape(text)}</p></body></html>'
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return HTMLResponse(content, code, {"Content-Security-Policy": policy, "Cache-Control": "no-store"})
