"""Dispatching: a request for a target becomes a verb, is authorised, and goes to its handler."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from isthmus.api.context import Context
from isthmus.api.requests import authenticated, require
from isthmus.errors import NotFound

from . import deleting, reading, watches, writing
from .calls import Call
from .options import list_options
from .targets import Target

_ON_OBJECT = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_COLLECTION = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_ON_STATUS = ("get", "update", "patch")
_READS = ("get", "list", "watch")


async def dispatch(context: Context, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
    """Authenticate, authorise, handle."""
    caller = await authenticated(scope, context)
    view = target.view
    verb = (_ON_OBJECT if target.name else _ON_COLLECTION).get(scope["method"], "")
    options = None
    if verb == "list":
        options = list_options(view.kind.name, scope["query_string"])
        if options.watch:
            verb = "watch"
    require(caller, verb or "do this to", view.kind.plural, target.namespace, target.name, target.subresource)
    _check_offered(target, verb, scope["method"])
    call = Call(context, scope, receive, send, target, caller)
    if verb == "get":
        await reading.get(call)
    elif verb == "list" and options is not None:
        await reading.list_(call, options)
    elif verb == "watch" and options is not None:
        await watches.watch(call, options)
    elif verb == "create":
        await writing.create(call)
    elif verb == "update":
        await writing.update(call)
    elif verb == "patch":
        await writing.patch(call)
    elif verb == "delete":
        await deleting.delete(call)
    else:
        await deleting.delete_collection(call)


def _check_offered(target: Target, verb: str, method: str) -> None:
    kind = target.view.kind
    if target.subresource == "scale":
        raise NotFound(f"{kind.resource} cannot be scaled: the kind has no number of replicas")
    if target.subresource == "status" and not kind.has_status:
        raise NotFound(f"{kind.resource} has no status of its own")
    if not verb or not _offers(target, verb):
        table = _ON_OBJECT if target.name else _ON_COLLECTION
        allow = ", ".join(other for other, its_verb in table.items() if _offers(target, its_verb))
        raise HTTPException(405, f"{method} is not offered for {kind.resource} here", {"Allow": allow})


def _offers(target: Target, verb: str) -> bool:
    if target.subresource == "status" and verb not in _ON_STATUS:
        return False
    if target.view.read_only:
        return verb in _READS
    everywhere = target.view.kind.namespaced and not target.namespace
    return not (everywhere and verb in ("create", "deletecollection"))
