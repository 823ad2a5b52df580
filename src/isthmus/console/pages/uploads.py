"""Folders sent from the browser, as the command line does: choose files, ask what is missing, send that, then the tree.

The browser hashes and packs (`static/folders.js`); what is left out is decided here, by the rules that `isthmus run`
goes by. Nothing passes that does not carry the form's code.
"""

from __future__ import annotations

import orjson
from starlette.responses import JSONResponse, Response

from isthmus.api.requests import read_body, require
from isthmus.client.folders import MAX_FILES
from isthmus.client.ignoring import sort_out
from isthmus.console.calling import in_tenant
from isthmus.console.rendering import HEADERS
from isthmus.console.visits import Visit
from isthmus.errors import Invalid

from .streams import Forwarded

_MAX_PATHS = 32 * 2**20


async def choose(visit: Visit) -> Response:
    """Which files of a folder are sent: `{"paths": […], "ignore": {".gitignore": "…"}}`."""
    visit.check_ours()
    require(visit.caller, "create", "files", visit.request.path_params["namespace"])
    body = await read_body(visit.request, _MAX_PATHS)
    caller = visit.caller.token or visit.caller.user
    sent, left_out = await visit.parts.context.work.run(caller, _sort_out, body)
    return JSONResponse({"send": sent, "leftOut": left_out}, 200, HEADERS)


def _sort_out(body: bytes) -> tuple[list[str], list[str]]:
    try:
        asked = orjson.loads(body)
        paths, ignore = asked["paths"], asked["ignore"]
        right = all(isinstance(text, str) for text in (*paths, *ignore, *ignore.values()))
    except (ValueError, TypeError, KeyError, AttributeError):
        right = False
    if not right:
        raise Invalid("the list of files is damaged; choose the folder again")
    if len(paths) > MAX_FILES:
        raise Invalid(
            f"the folder has {len(paths)} files, more than the {MAX_FILES} that may be sent; choose a part of it"
        )
    return sort_out(paths, ignore)


async def missing(visit: Visit) -> Response:
    """Which contents the tenant does not have yet."""
    return _forwarded(visit, "missing")


async def pack(visit: Visit) -> Response:
    """Contents."""
    return _forwarded(visit, "pack")


async def tree(visit: Visit) -> Response:
    """The folder, when all its contents are there."""
    return _forwarded(visit, "tree")


def _forwarded(visit: Visit, what: str) -> Response:
    visit.check_ours()
    return Forwarded(visit, in_tenant(visit.request.path_params["namespace"], "files", what))


PAGES = (
    ("POST", "/submit/files/{namespace}/choose", choose),
    ("POST", "/submit/files/{namespace}/missing", missing),
    ("POST", "/submit/files/{namespace}/pack", pack),
    ("PUT", "/submit/files/{namespace}/tree", tree),
)
