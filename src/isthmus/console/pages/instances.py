"""Opening an instance: who signed in here gets a ticket for its own address."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from isthmus.console.calling import in_tenant
from isthmus.console.rendering import HEADERS
from isthmus.console.visits import Visit
from isthmus.errors import Conflict, Forbidden
from isthmus.proxy.app import ENTER
from isthmus.proxy.entering_rules import may_enter
from isthmus.resources.instances import Instance


async def open_instance(visit: Visit) -> Response:
    """Lead the browser to the instance, with a ticket that is good for a minute and one use."""
    where = visit.request.path_params
    obj = await visit.asker.get(in_tenant(where["namespace"], "instances", where["name"]))
    instance = Instance.model_validate(obj)
    if not may_enter(visit.caller, instance):
        raise Forbidden(f"instance {instance.name} is not yours; ask its owner to share it with you")
    if visit.parts.passes is None or instance.status.url is None:
        raise Conflict(instance.status.message or f"instance {instance.name} does not run; start it first")
    ticket = visit.parts.passes.ticket(visit.session.token, instance.uid, visit.session.word)
    query = urlencode({"ticket": ticket, "path": visit.query.get("path", "/")})
    return RedirectResponse(f"{instance.status.url.rstrip('/')}{ENTER}?{query}", 303, HEADERS)


PAGES = (("GET", "/open/{namespace}/{name}", open_instance),)
