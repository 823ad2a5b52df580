"""Visits: one request of a browser, with who sends it, how it reaches the API, and how it is answered.

Cookies are named after the port, because browsers share them between all ports of a host. Over TLS they carry the
prefix `__Host-`, which makes the browser refuse to send them in the clear or to take them from anybody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from isthmus.api.auditing import origin_of
from isthmus.api.requests import read_body
from isthmus.errors import Forbidden, Invalid, Unauthenticated
from isthmus.identity.authorizing import allowed, visible_tenants
from isthmus.identity.callers import Caller

from .calling import Asker
from .session_records import SessionRecords
from .sessions import SESSION_SECONDS, Session, Sessions

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from isthmus.api.context import Context

    from .live import Live

BASE = "/console"
THEMES = ("light", "dark")


@dataclass(frozen=True)
class Parts:
    """What all visits share."""

    context: Context
    api: ASGIApp
    sessions: Sessions
    records: SessionRecords
    live: Live


@dataclass(frozen=True)
class Visit:
    """One request."""

    parts: Parts
    request: Request
    mark: str
    """The moment of its beginning, as `live` counts."""
    over: bool = False
    """Whether the session of its cookie was ended."""

    async def checked(self) -> Visit:
        """The visit, after a look whether its session was ended."""
        found = self._sealed()
        over = found is not None and not await self.parts.records.goes_on(found.word)
        return replace(self, over=over) if over else self

    @cached_property
    def session(self) -> Session:
        """The session of its cookie; raises Unauthenticated."""
        found = None if self.over else self._sealed()
        if found is None:
            raise Unauthenticated("sign in first")
        return found

    def _sealed(self) -> Session | None:
        return self.parts.sessions.open(self.request.cookies.get(self._cookie("session"), ""))

    @cached_property
    def caller(self) -> Caller:
        """Who it is, now; raises Unauthenticated."""
        return self.parts.context.authenticator.authenticate(self.session.header)

    @property
    def known_caller(self) -> Caller | None:
        """The same; None if nobody is signed in."""
        try:
            return self.caller
        except Unauthenticated:
            return None

    @cached_property
    def asker(self) -> Asker:
        """The API, with the caller's own token."""
        return Asker(self.parts.api, self.session.header, origin_of(self.request.scope))

    @cached_property
    def tenants(self) -> frozenset[str] | None:
        """The tenants whose jobs the caller may list; None means all."""
        mine = visible_tenants(self.caller)
        return None if mine is None else frozenset(t for t in mine if self.may("list", "jobs", t))

    def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Whether to offer something at all; the API decides again."""
        return allowed(self.caller, verb, resource, namespace, name)

    @property
    def query(self) -> dict[str, str]:
        """What the address asks for."""
        return dict(self.request.query_params)

    @property
    def theme(self) -> str:
        """`light`, `dark`, or nothing: as the system says."""
        chosen = self.request.cookies.get("isthmus-theme", "")
        return chosen if chosen in THEMES else ""

    async def form(self, word: str | None = None) -> dict[str, str]:
        """The fields of a form of ours; raises Forbidden if another page may have made it."""
        body = await read_body(self.request, self.parts.context.limits.body_bytes)
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000, errors="strict")
        except ValueError:
            raise Invalid("the form is not UTF-8; send it again") from None
        # Fields that are there several times (ticked boxes) become lines.
        lines: dict[str, list[str]] = {}
        for name, value in pairs:
            lines.setdefault(name, []).append(value)
        fields = {name: "\n".join(values) for name, values in lines.items()}
        self.check_ours(self.session.word if word is None else word, fields.pop("csrf", ""))
        return fields

    def check_ours(self, word: str | None = None, code: str = "") -> None:
        """Refuse what a page of another site may have sent; a script of ours names the code in a header."""
        site = self.request.headers.get("sec-fetch-site", "same-origin")
        origin = self.request.headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2] != self.request.headers.get("host", "")
        if foreign or site not in ("same-origin", "none"):
            raise Forbidden("the form was sent by a page of another site; open the console itself")
        mine = self.session.word if word is None else word
        if not self.parts.sessions.right_code(mine, code or self.request.headers.get("x-csrf", "")):
            raise Forbidden("this form is too old, or was not made by this console; go back, reload and send it again")

    # Cookies

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.request.url.scheme == "https"

    def _cookie(self, what: str) -> str:
        port = (self.request.scope.get("server") or ("", 0))[1]
        return f"{'__Host-' if self.secure else ''}isthmus-{what}-{port}"

    async def sign_in(self, answer: Response, token: str, caller: Caller) -> None:
        """Begin a session, and give the browser its cookie."""
        session, cookie = self.parts.sessions.begin(token)
        await self.parts.records.begin(session.word, caller.token)
        self._set(answer, "session", cookie, SESSION_SECONDS, "lax")

    async def sign_out(self, answer: Response) -> None:
        """End the session, everywhere."""
        await self.parts.records.end(self.session.word)
        self.drop_cookie(answer)

    def drop_cookie(self, answer: Response) -> None:
        """Take the cookie of a session that is over away."""
        self._set(answer, "session", "", 0, "lax")

    @property
    def stranger(self) -> str:
        """The word of somebody who has not signed in yet."""
        return self.request.cookies.get(self._cookie("visit"), "")

    def mark_stranger(self, answer: Response, word: str) -> None:
        """Remember a stranger's word, so that only they can send the form."""
        self._set(answer, "visit", word, 3600, "strict")

    def _set(self, answer: Response, what: str, value: str, seconds: int, same_site: Any) -> None:
        answer.set_cookie(
            self._cookie(what), value, max_age=seconds, path="/", secure=self.secure, httponly=True, samesite=same_site
        )


def back_to(path: str) -> Response:
    """After a form: see this page."""
    return RedirectResponse(path, 303)


def local_path(path: str) -> str:
    """A path of the console, as an address may name it; the overview if it is anything else."""
    inside = path.startswith(f"{BASE}/") and "\\" not in path  # what begins so names neither scheme nor host
    return path if inside and path.isprintable() else f"{BASE}/"
