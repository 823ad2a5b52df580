"""Where administrators read the audit log: what fits a question, and the logs as they are, to check their chains.

Whoever checks gets the text of a log and computes the hashes herself, so that she need not believe the server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus.errors import Invalid, NotFound, Unavailable
from isthmus.identity.audit.audit_reading import MATCHED, AuditQuestion, logs_in, search, text_of
from isthmus.identity.audit.noting import notes

from .requests import caller_of, require
from .responses import json_response

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from .context import Context

AUDIT = "/apis/isthmus.dev/v1/audit"
LOGS = f"{AUDIT}/logs"
MOST = 10_000
_PIECE = 4 * 2**20


def routes(context: Context) -> list[BaseRoute]:
    """For platform administrators only."""

    async def entries(request: Request) -> Response:
        caller = await _admin(request)
        question = _question(request)
        found = await context.work.run(caller, search, _folder(), question)
        return json_response({"apiVersion": "isthmus.dev/v1", "kind": "AuditList", "items": found})

    async def logs(request: Request) -> Response:
        await _admin(request)
        known = await notes(context.store)
        names = sorted({*await asyncio.to_thread(logs_in, _folder()), *known})
        items = [{"name": name, **_noted(known, name)} for name in names]
        return json_response({"apiVersion": "isthmus.dev/v1", "kind": "AuditLogList", "items": items})

    async def text(request: Request) -> Response:
        caller = await _admin(request)
        folder, name = _folder(), request.path_params["name"]
        if name not in await asyncio.to_thread(logs_in, folder):
            raise NotFound(f"there is no audit log {name[:80]!r}; GET {LOGS} lists them")
        first, offset = _number(request, "file", 0), _number(request, "offset", 0)
        found = await context.work.run(caller, text_of, folder / name, first, offset, _PIECE)
        answer: dict[str, Any] = {"apiVersion": "isthmus.dev/v1", "kind": "AuditText", "text": ""}
        if found is not None:
            answer |= {"text": found[0], "file": found[1], "offset": found[2]}
        return json_response(answer)

    async def _admin(request: Request) -> str:
        caller = await caller_of(request, context)
        require(caller, "list", "audit", "")
        return caller.token or caller.user

    def _folder() -> Path:
        if context.audit is None:
            raise Unavailable("this server keeps no audit log")
        return context.audit.folder.parent

    return [
        Route(AUDIT, entries, methods=["GET"]),
        Route(LOGS, logs, methods=["GET"]),
        Route(f"{LOGS}/{{name}}", text, methods=["GET"]),
    ]


def _noted(known: Any, name: str) -> dict[str, Any]:
    head = known.get(name)
    return {} if head is None else {"entries": head.n, "hash": head.hash}


def _question(request: Request) -> AuditQuestion:
    asked = request.query_params
    if unknown := sorted(set(asked) - {*MATCHED, "since", "until", "limit"}):
        raise Invalid(f"audit entries cannot be asked for by {unknown[0][:40]!r}; by {', '.join(MATCHED)}")
    return AuditQuestion(
        limit=min(MOST, max(1, _number(request, "limit", 1000))),
        since=_moment(asked.get("since", "")),
        until=_moment(asked.get("until", "")),
        fields={name: asked[name] for name in MATCHED if name in asked},
    )


def _moment(text: str) -> str:
    try:
        return timestamp(parse_timestamp(text)) if text else ""
    except ValueError as error:
        raise Invalid(str(error)) from None


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise Invalid(f"{name}={text[:20]!r} is not a number")
    return int(text)
