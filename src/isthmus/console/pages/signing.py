"""Signing in and out: with a token, or with a ticket from `isthmus console`."""

from __future__ import annotations

import secrets

from starlette.responses import JSONResponse, Response

from isthmus.api.auditing import note_sign_in
from isthmus.api.requests import authorization_of
from isthmus.console.rendering import HEADERS, page
from isthmus.console.sessions import Sessions
from isthmus.console.visits import BASE, Visit, back_to, local_path
from isthmus.errors import Forbidden, Unauthenticated
from isthmus.identity.callers import Caller
from isthmus.resources.tokens import PREFIX


async def form(visit: Visit) -> Response:
    """Where a token is asked for."""
    return _form(visit)


def _form(visit: Visit, problem: str = "", code: int = 200) -> Response:
    word = visit.stranger or secrets.token_urlsafe(18)
    wanted = local_path(visit.query.get("next", ""))
    answer = page(
        "sign_in.html", code, csrf=visit.parts.sessions.code(word), next=wanted, problem=problem, theme=visit.theme
    )
    visit.mark_stranger(answer, word)
    return answer


async def sign_in(visit: Visit) -> Response:
    """Check the token, set the cookie, go where they wanted to go."""
    try:
        fields = await visit.form(visit.stranger)
    except Forbidden as error:
        return _form(visit, error.message, 403)
    token = fields.get("token", "").strip()
    try:
        caller = _caller(visit, token)
    except Unauthenticated:
        client = visit.request.client
        note_sign_in(visit.parts.context, visit.request.scope, None)
        await visit.parts.context.slowing.failed(client.host if client else "", "")
        hint = "it is unknown, expired or revoked" if token.startswith(PREFIX) else f"it should begin with {PREFIX}"
        return _form(visit, f"This token does not sign anybody in: {hint}.", 422)
    return await _signed_in(visit, token, caller, local_path(fields.get("next", "")))


def _caller(visit: Visit, token: str) -> Caller:
    return visit.parts.context.authenticator.authenticate(b"Bearer " + token.encode("latin-1", "replace"))


async def sign_out(visit: Visit) -> Response:
    """End the session."""
    await visit.form()
    note_sign_in(visit.parts.context, visit.request.scope, visit.caller, "sign-out")
    answer = back_to(f"{BASE}/sign-in")
    await visit.sign_out(answer)
    return answer


async def make_ticket(visit: Visit) -> Response:
    """For a program that has a token: a link that signs its owner's browser in, once and soon."""
    header = authorization_of(visit.request.scope)
    visit.parts.context.authenticator.authenticate(header)
    scheme, _, token = (header or b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise Forbidden("send the token as `Authorization: Bearer …`")
    return JSONResponse({"path": link(visit.parts.sessions, token.strip())}, 201, HEADERS)


def link(sessions: Sessions, token: str) -> str:
    """The path that a ticket opens."""
    return f"{BASE}/enter?ticket={sessions.new_ticket(token)}"


async def enter(visit: Visit) -> Response:
    """Ask whether to use the ticket: a link that is only looked at (by a chat program) does not use it up."""
    ticket = visit.query.get("ticket", "")
    token = visit.parts.sessions.ticket(ticket)
    if token is None:
        return _form(visit, "This link was used or is older than ten minutes; make a new one: isthmus console", 422)
    try:
        caller = _caller(visit, token)
    except Unauthenticated:
        return _form(visit, "The token behind this link is expired or revoked.", 422)
    word = visit.stranger or secrets.token_urlsafe(18)
    code = visit.parts.sessions.code(word)
    answer = page("enter.html", csrf=code, ticket=ticket, user=caller.user, theme=visit.theme)
    visit.mark_stranger(answer, word)
    return answer


async def use_ticket(visit: Visit) -> Response:
    """Sign in with it."""
    fields = await visit.form(visit.stranger)
    token = visit.parts.sessions.ticket(fields.get("ticket", ""), use=True)
    if token is None:
        return _form(visit, "This link was used or is older than ten minutes; make a new one: isthmus console", 422)
    return await _signed_in(visit, token, _caller(visit, token), f"{BASE}/")


async def _signed_in(visit: Visit, token: str, caller: Caller, path: str) -> Response:
    note_sign_in(visit.parts.context, visit.request.scope, caller)
    answer = back_to(path)
    await visit.sign_in(answer, token, caller)
    return answer


PAGES = (
    ("GET", "/sign-in", form),
    ("POST", "/sign-in", sign_in),
    ("POST", "/sign-out", sign_out),
    ("POST", "/tickets", make_ticket),
    ("GET", "/enter", enter),
    ("POST", "/enter", use_ticket),
)
