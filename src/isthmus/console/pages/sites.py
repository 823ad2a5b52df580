"""Sites and devices: what there is, whether it answers, how full it is."""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.responses import Response

from isthmus.console.calling import GROUP
from isthmus.console.capacities import room_at
from isthmus.console.rendering import render
from isthmus.console.visits import BASE, Visit, back_to


async def sites(visit: Visit) -> Response:
    """All of them, and the classes of devices."""
    found, classes = await asyncio.gather(visit.asker.get(f"{GROUP}/sites"), visit.asker.get(f"{GROUP}/deviceclasses"))
    await visit.parts.live.start()
    rooms = room_at(found["items"], visit.parts.live.jobs.active())
    free: Counter[str] = Counter()
    for room in rooms:
        free.update({name: int(part.free) for name, part in room.devices.items()})
    return render(visit, "sites.html", rooms=rooms, classes=classes["items"], free=free)


async def site(visit: Visit) -> Response:
    """One of them: nodes, queues, what the engine can do."""
    name = visit.request.path_params["name"]
    found = await visit.asker.get(f"{GROUP}/sites/{name}")
    await visit.parts.live.start()
    room = room_at([found], visit.parts.live.jobs.active())[0]
    return render(visit, "site.html", room=room, site=found, may_change=visit.may("patch", "sites", "", name))


async def switch(visit: Visit) -> Response:
    """Let it take new work, or not."""
    fields = await visit.form()
    name = visit.request.path_params["name"]
    await visit.asker.patch(f"{GROUP}/sites/{name}", {"spec": {"enabled": fields.get("enabled") == "true"}})
    return back_to(f"{BASE}/sites/{name}")


PAGES = (("GET", "/sites", sites), ("GET", "/sites/{name}", site), ("POST", "/sites/{name}", switch))
